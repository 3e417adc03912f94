"""Requests about staged files: send the files of a job before its submission, fetch its outputs."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any

from pliant.core.values.ids import JobId
from pliant.protos.staging.archive import BLOCK_BYTES, StagingError
from pliant.server.authorisation.access_control import RequestingUser
from pliant.server.database.reader import Reader
from pliant.server.staging.staged_files import JobFolder, StagedFiles, node_of
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests.job_lookup import JobLookup
from pliant.server.user_requests.request_fields import Answer, Request, not_found, read_number


class StagingRequests:
    """One method for each request about staged files."""

    def __init__(self, files: StagedFiles, jobs: JobLookup, reader: Reader) -> None:
        self._files, self._jobs, self._reader = files, jobs, reader

    async def stage(self, request: Request, peer: RequestingUser) -> Answer:
        """Append the part ``data`` (base64) to an upload, and return the upload's id and size.

        ``upload`` is the id; without it, a new upload begins. A client sends the next part only
        after this answer, so at most one part of each client is in memory.
        """
        try:
            data = base64.b64decode(_text(request, "data"), validate=True)
        except binascii.Error:
            raise UserRequestError("data: expected base64", field="data") from None
        upload = _text(request, "upload") if "upload" in request else ""
        offset = read_number(request, "offset", 0)
        name, size = await self._in_thread(self._files.upload, peer.uid, upload, offset, data)
        return {"upload": name, "size": size}

    async def outputs(self, request: Request, peer: RequestingUser) -> Answer:
        """List the outputs of job ``id`` that wait to be fetched.

        With ``name``, return a part of this output, from the byte ``offset`` on. With ``fetched``
        (the names of the files that it contained), remove this output.
        """
        job = JobId(read_number(request, "id"))
        await self._jobs.check_owner("outputs", job, peer)
        if peer.uid != await self._in_thread(self._reader.uid_of, job):
            # Operators act on the jobs of others, but must not read their files.
            raise UserRequestError("only the user of a job can fetch its outputs", kind="refused")
        found = {path.name: path for path in await self._in_thread(self._files.outputs, job)}
        if "name" not in request:
            answer: Answer = await self._in_thread(self._list, job, list(found.values()))
            return answer
        path = found.get(_text(request, "name"))
        if path is None:
            raise UserRequestError(
                "name: there are no such outputs", kind="not_found", field="name"
            )
        if "fetched" in request:
            names = request["fetched"]
            if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
                raise UserRequestError("fetched: expected a list of names", field="fetched")
            await self._in_thread(self._files.mark_delivered, path, names)
            return {}
        data = await self._in_thread(_read, path, read_number(request, "offset", 0))
        return {"data": base64.b64encode(data).decode("ascii")}

    def _list(self, job: JobId, waiting: list[Path]) -> Answer:
        program = self._reader.program(job)
        if program is None:
            raise not_found(job)
        to = JobFolder.of(0, program)
        listed = []
        for path in waiting:
            earlier, taken = self._files.delivered(path)
            listed.append(
                {
                    "name": path.name,
                    "size": path.stat().st_size,
                    "node": node_of(path),
                    "earlier": sorted(earlier),
                    "taken": sorted(taken),
                }
            )
        return {
            "folder": to.folder,
            "streams": list(to.streams),
            "truncates": to.truncates,
            "outputs": listed,
        }

    async def _in_thread(self, call: Any, *arguments: Any) -> Any:
        """Run a function in a thread, because it waits for the disk; return its result.

        Raises:
            UserRequestError: the function raised StagingError or OSError.
        """
        try:
            return await self._files.in_thread(call, *arguments)
        except StagingError as error:
            raise UserRequestError(f"stage: {error}", kind="refused", field="stage") from None
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise UserRequestError(
                f"the server cannot store staged files ({why}): try again later", kind="unavailable"
            ) from None


def _read(path: Path, offset: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(BLOCK_BYTES)


def _text(request: Request, field: str) -> str:
    value = request.get(field)
    if not isinstance(value, str):
        raise UserRequestError(f"{field}: expected a text", field=field)
    return value
