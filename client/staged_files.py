"""Send the files of a job to the server before its submission, and fetch its outputs after its end.

See ``docs/staging.md`` for the options and for what users see.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from pliant.client.client_errors import RequestError, SubmitError, UsageError
from pliant.protos.staging.archive import BLOCK_BYTES, StagingError, digest, pack, relative_name
from pliant.protos.staging.deliver_outputs import deliver

if TYPE_CHECKING:
    from pliant.client.connection import Connection

#: Archives of any size are packed, because the server knows the limit and refuses larger ones.
_NO_LIMIT = 1 << 62


def stage_job(
    link: Connection, job: dict[str, Any], names: Sequence[str], outputs: Sequence[str]
) -> None:
    """Send the files of ``--stage``, and add their entry to the request that submits the job.

    Each element of ``names`` and ``outputs`` may be several names, separated by commas.

    Args:
        link: the connection to the server.
        job: the request, which is changed.
        names: files and folders to send.
        outputs: patterns of the files that are returned after the job.

    Raises:
        UsageError: there are patterns of outputs, but no files to send.
        SubmitError, RequestError: as `send_files`.
    """
    if not names:
        raise UsageError("--stage-out: needs --stage, which sends files to the nodes")
    job["stage"] = send_files(link, job, _split(names), _split(outputs))


def _split(values: Sequence[str]) -> list[str]:
    """Return the names in options that may each have several, separated by commas."""
    return [name for value in values for name in value.split(",") if name]


def send_files(
    link: Connection, job: dict[str, Any], names: Sequence[str], outputs: Sequence[str]
) -> dict[str, Any]:
    """Send files to the server, and return their entry in the request that submits the job.

    The program, and other arguments that are absolute paths of files in the working directory,
    are sent, too.

    Args:
        link: the connection to the server.
        job: the job, as `build_job` returns it.
        names: files and folders, relative to the working directory of the job.
        outputs: patterns of files that are returned; empty for all new and changed files.

    Raises:
        SubmitError: a file is missing, cannot be read, or cannot be sent.
        RequestError: the server refuses the files.
    """
    folder = str(job["cwd"])
    if folder == "/":
        raise SubmitError("stage", "the working directory is /", "submit from another directory")
    inside = [word for word in job["argv"] if word.startswith(f"{folder}/")]
    try:
        wanted = [relative_name(name, folder) for name in names]
        wanted += [os.path.relpath(path, folder) for path in inside if os.path.isfile(path)]
        with tempfile.TemporaryFile() as file:
            pack(folder, wanted, file, _NO_LIMIT)
            file.seek(0)
            sha256, size = digest(file), file.tell()
            file.seek(0)
            upload = _upload(link, file)
    except StagingError as error:
        raise SubmitError("stage", str(error)) from None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise SubmitError("stage", f"the archive cannot be written ({why})", "set TMPDIR") from None
    return {"upload": upload, "size": size, "sha256": sha256, "out": list(outputs)}


def _upload(link: Connection, file: IO[bytes]) -> str:
    """Send an archive in parts, and return the id of the upload."""
    upload, offset = "", 0
    while data := file.read(BLOCK_BYTES):
        more: dict[str, Any] = {"upload": upload} if upload else {}
        text = base64.b64encode(data).decode("ascii")
        answer = link.request("stage", data=text, offset=offset, **more)
        upload, offset = str(answer["upload"]), int(answer["size"])
    return upload


def fetch_outputs(link: Connection, job: int | str, folder: str = "") -> list[str]:
    """Fetch a job's output files from the server into the folder from which the job was submitted.

    Args:
        link: the connection to the server.
        job: the job.
        folder: another folder to use; empty for the folder of the submission.

    Returns:
        The names of the files.

    Raises:
        RequestError: the job is unknown, another user's, or a file cannot be written.
    """
    names: list[str] = []
    while (answer := link.request("outputs", id=job))["outputs"]:
        first, target = answer["outputs"][0], folder or str(answer["folder"])
        try:
            with tempfile.TemporaryFile() as file:
                while file.tell() < first["size"]:
                    part = link.request("outputs", id=job, name=first["name"], offset=file.tell())
                    data = base64.b64decode(part["data"])
                    if not data:
                        raise StagingError("the server has lost a part of the outputs")
                    file.write(data)
                file.seek(0)
                found = deliver(
                    file,
                    target,
                    first["node"],
                    streams=answer["streams"],
                    truncates=answer["truncates"],
                    earlier=first["earlier"],
                    taken=first["taken"],
                    limit=_NO_LIMIT,
                )
        except StagingError as error:
            raise RequestError(f"outputs of job {job}: {error}") from None
        except OSError as error:
            where = f"{error.filename or target}: {(error.strerror or str(error)).lower()}"
            raise RequestError(f"outputs of job {job}: {where}") from None
        link.request("outputs", id=job, name=first["name"], fetched=found)
        names += found
    return names
