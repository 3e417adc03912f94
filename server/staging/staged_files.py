"""The folder ``staged`` of the server: files on their way to nodes, outputs on their way back.

======================  ========================================================================
file                    content
======================  ========================================================================
upload.UID.ID           an archive that a user is sending, or has sent and not yet used for a job
JOB.in                  the archive of a job, until the job has ended
JOB.WORLD@NODE.ID.part  outputs that a node is sending; each stream has its own file
JOB.WORLD@NODE.out      outputs that wait until their user fetches them
JOB.WORLD@NODE.done     the names of outputs that are in the submission folder
======================  ========================================================================

If the server runs as the user of a job, it puts the outputs into the submission folder itself.
Otherwise it has no rights there, and keeps them for ``jobctl fetch``.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pliant.protos.daemons.atomic_files import sync_folder, write_whole
from pliant.protos.staging.archive import StagingError, check_space, digest
from pliant.protos.staging.deliver_outputs import deliver
from pliant.server.registry.job_program import Program
from pliant.server.support.threads import thread_pool

#: Space that stays free on the server's file system, for the job database.
RESERVE_BYTES = 256 << 20
#: Uploads that no job uses, and outputs that nobody fetches, are removed after this time.
UPLOAD_KEPT_S, OUTPUT_KEPT_S = 600.0, 14 * 86400.0

#: Threads that wait for the disk, for all users together.
_THREADS = 2

T = TypeVar("T")

_ID = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The submission folder of a job, to which its outputs are returned."""

    uid: int
    folder: str
    #: Files of standard output and error, relative to the folder.
    streams: tuple[str, ...]
    #: Whether they replace existing files of the same name.
    truncates: bool

    @classmethod
    def of(cls, uid: int, program: Program) -> JobFolder:
        """Return the submission folder of a job, to which its outputs are delivered.

        Args:
            uid: the user id of the job's owner.
            program: the program of the job, which names the folder.
        """
        paths = (program.stdout, program.stderr)
        streams = tuple(os.path.relpath(path, program.cwd) for path in paths if path)
        return cls(uid, program.cwd, streams, program.open_mode == "truncate")


def node_of(outputs: Path) -> str:
    """Return the name of the node from the path of an archive with a node's outputs."""
    return outputs.stem.rpartition("@")[2]


def _run_of(outputs: Path) -> str:
    """Return which run of a job made the outputs in an archive, from the path of the archive.

    The result names cluster, job and run, such as ``c1.j5.r2``.
    """
    return outputs.stem.rpartition("@")[0].rpartition(".w")[0]


def _delivered_names(done: Path) -> list[str] | None:
    """Return the names of delivered files from a file ``.done``.

    None if there is no such file, or it is damaged.
    """
    try:
        names = json.loads(done.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return names if isinstance(names, list) else None


class StagedFiles:
    """Stores archives of staged files. Any thread may call the methods.

    All methods except `in_thread` wait for the disk.
    """

    def __init__(self, state: Path, limit: int, own_uid: int) -> None:
        """Store archives in the folder ``staged`` below the state folder.

        Args:
            state: the state folder.
            limit: the largest size in bytes of one archive, and of all uploads of one user that
                belong to no job yet.
            own_uid: the user id of this process.
        """
        self.folder, self.limit, self._own_uid = state / "staged", limit, own_uid
        self._threads = thread_pool("staging", _THREADS)
        # Hosts of a job that end together must see what the other one has delivered, and outputs
        # that their user has fetched must not be delivered a second time.
        self._delivering = threading.RLock()

    async def in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        """Run a function in a thread, because it waits for the disk; return its result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, call, *arguments)

    def close(self) -> None:
        """End the threads; called when no transfers can be requested any more."""
        self._threads.shutdown()

    # ---------------------------------------------------------------- uploads

    def upload(self, uid: int, name: str, offset: int, data: bytes) -> tuple[str, int]:
        """Add a part to an upload of a user; return the id of the upload and its size.

        Args:
            uid: the user.
            name: the id of the upload; empty to begin one.
            offset: the offset of the part in the archive, in bytes.
            data: the part.

        Raises:
            StagingError: there is no such upload, the offset is wrong, or there is no space.
        """
        self.folder.mkdir(mode=0o700, exist_ok=True)
        name = name or secrets.token_hex(16)
        path = self._upload(uid, name)
        if offset == 0:
            self._remove_old(f"upload.{uid}.*", UPLOAD_KEPT_S)
            path.touch(mode=0o600)
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise StagingError("this upload is unknown or too old: submit the job again") from None
        if size != offset:
            raise StagingError(f"a part for byte {offset} came after byte {size}")
        try:
            self._check_space(uid, len(data))
        except StagingError:
            # The client gives up, and the parts would count towards the limit of its user.
            path.unlink(missing_ok=True)
            raise
        with open(path, "ab") as file:
            file.write(data)
        return name, size + len(data)

    def check_upload(self, uid: int, name: str, size: int, sha256: str) -> None:
        """Check that an upload of a user is complete.

        Raises:
            StagingError: there is no such upload, or it is damaged.
        """
        path = self._upload(uid, name)
        try:
            with open(path, "rb") as file:
                is_whole = (digest(file), file.tell()) == (sha256, size)
        except FileNotFoundError:
            raise StagingError("this upload is unknown or too old: submit the job again") from None
        if not is_whole:
            raise StagingError("the upload is damaged: submit the job again")

    def use_upload(self, uid: int, name: str, job: int) -> None:
        """Turn an upload of a user into the archive of a job.

        Raises:
            OSError: there is no such upload any more.
        """
        os.replace(self._upload(uid, name), self.archive(job))

    def return_to_uploads(self, uid: int, name: str, job: int) -> None:
        """Make the archive of a job an upload again, because the job could not be stored."""
        with suppress(OSError):
            os.replace(self.archive(job), self._upload(uid, name))

    def _upload(self, uid: int, name: str) -> Path:
        if not _ID.fullmatch(name):
            raise StagingError(f"{name!r:.40} is not the id of an upload")
        return self.folder / f"upload.{uid}.{name}"

    def _check_space(self, uid: int, more: int) -> None:
        """Check that a user's uploads stay below the limit, and that the disk has space.

        Args:
            uid: the user.
            more: the number of bytes to add.

        Raises:
            StagingError: there is no space for them.
        """
        used = sum(path.stat().st_size for path in self.folder.glob(f"upload.{uid}.*"))
        if used + more > self.limit:
            raise StagingError(
                f"more than {self.limit} bytes of your files wait on the server (staging_limit)"
            )
        check_space(str(self.folder), more, RESERVE_BYTES)

    # ---------------------------------------------------------------- jobs

    def archive(self, job: int) -> Path:
        """Return the path of the archive with the staged input files of a job."""
        return self.folder / f"{job}.in"

    def begin_outputs(self, job: int, world: str, node: str, size: int) -> Path | None:
        """Return the path of a new file for a node's outputs; None if the server has them already.

        The caller removes the file if it does not pass it to `add_outputs`.

        Raises:
            StagingError: the outputs are too large, or there is no space for them.
        """
        if not (_NAME.fullmatch(world) and _NAME.fullmatch(node)):
            raise StagingError("the names of the world and of the node are damaged")
        self.folder.mkdir(mode=0o700, exist_ok=True)
        whole = self.folder / f"{job}.{world}@{node}.out"
        if whole.exists() or whole.with_suffix(".done").exists():
            return None
        if size > self.limit:
            raise StagingError(
                f"the outputs have {size} bytes, and the server takes {self.limit} (staging_limit)"
            )
        check_space(str(self.folder), size, RESERVE_BYTES)
        return whole.with_suffix(f".{secrets.token_hex(8)}.part")

    def add_outputs(self, draft: Path, sha256: str, to: JobFolder) -> None:
        """Accept the complete outputs of a node, and deliver them if the server has the rights to.

        Args:
            draft: the file that `begin_outputs` returned.
            sha256: the digest of the outputs.
            to: the folder and user to which the outputs are delivered.

        Raises:
            StagingError: the outputs are damaged, or cannot be written into the submission folder.
        """
        with open(draft, "rb") as file:
            found = digest(file)
            os.fsync(file.fileno())
        if found != sha256:
            draft.unlink()
            raise StagingError("the outputs were damaged on their way to the server")
        whole = draft.with_suffix("").with_suffix(".out")
        with self._delivering:
            if _delivered_names(whole.with_suffix(".done")) is not None:
                draft.unlink()  # another stream of this node was faster
                return
            os.replace(draft, whole)
            sync_folder(self.folder)
            self._deliver(whole, to)

    def finish_delivery(self, job: int, world: str, node: str, to: JobFolder) -> None:
        """Deliver again the outputs of a node whose delivery was interrupted.

        The server has received them completely before.

        Raises:
            StagingError: the outputs cannot be written into the submission folder.
        """
        self._deliver(self.folder / f"{job}.{world}@{node}.out", to)

    def _deliver(self, whole: Path, to: JobFolder) -> None:
        # The server may not write to folders of other users. If the job was submitted on another
        # host, the folder may not exist here.
        if to.uid != self._own_uid or not os.path.isdir(to.folder):
            return
        with self._delivering:
            if _delivered_names(whole.with_suffix(".done")) is not None:
                whole.unlink(missing_ok=True)  # the server was killed just before this
            elif whole.exists():
                self._deliver_locked(whole, to)

    def _deliver_locked(self, whole: Path, to: JobFolder) -> None:
        earlier, taken = self.delivered(whole)
        try:
            with open(whole, "rb") as file:
                names = deliver(
                    file,
                    to.folder,
                    node_of(whole),
                    streams=to.streams,
                    truncates=to.truncates,
                    earlier=earlier,
                    taken=taken,
                    limit=self.limit,
                )
        except OSError as error:
            where, job = error.filename or to.folder, whole.name.partition(".")[0]
            raise StagingError(
                f"{where}: {(error.strerror or str(error)).lower()}; `jobctl fetch {job}` fetches "
                "the outputs again"
            ) from None
        self.mark_delivered(whole, names)

    def mark_delivered(self, whole: Path, names: list[str]) -> None:
        """Record which files a delivered archive of outputs contained, and remove the archive.

        Args:
            whole: the path of the archive.
            names: the names of the files.
        """
        with self._delivering:
            write_whole(whole.with_suffix(".done"), json.dumps(names))
            whole.unlink(missing_ok=True)

    def outputs(self, job: int) -> list[Path]:
        """Return the archives of a job's outputs that its user has not fetched, oldest first."""
        return sorted(self.folder.glob(f"{job}.*.out"), key=lambda path: path.stat().st_mtime)

    def delivered(self, whole: Path) -> tuple[set[str], set[str]]:
        """Return the files of a job that are in its submission folder already.

        Args:
            whole: the outputs of one node that are to be delivered next.

        Returns:
            All files of the job that were delivered, and those of them that came from another node
            in the same run.
        """
        job, run = whole.name.partition(".")[0], _run_of(whole)
        earlier, taken = set[str](), set[str]()
        for done in self.folder.glob(f"{job}.*.done"):
            # Files of a damaged list are treated as those of the submission folder.
            names = _delivered_names(done) or []
            earlier.update(names)
            if _run_of(done) == run and node_of(done) != node_of(whole):
                taken.update(names)
        return earlier, taken

    # ---------------------------------------------------------------- removal

    def _remove_old(self, pattern: str, kept_s: float) -> None:
        for path in self.folder.glob(pattern):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - kept_s:
                    path.unlink()

    def on_jobs_closed(self, jobs: Iterable[int], _: object = ()) -> None:
        """Remove the files of jobs that have ended. The second argument is not used."""
        if not self.folder.exists():
            return
        for job in jobs:
            self.archive(job).unlink(missing_ok=True)

    def sweep(self, open_jobs: Iterable[int]) -> None:
        """Remove the files of jobs that are not in ``open_jobs``, and files that are too old.

        Uploads are kept for `UPLOAD_KEPT_S` seconds, outputs of ended jobs for `OUTPUT_KEPT_S`.
        """
        if not self.folder.exists():
            return
        self._remove_old("upload.*", UPLOAD_KEPT_S)
        for kind in ("out", "done"):
            self._remove_old(f"*.{kind}", OUTPUT_KEPT_S)
        known = set(map(str, open_jobs))
        for kind in ("in", "part"):
            for path in self.folder.glob(f"*.{kind}"):
                if path.name.partition(".")[0] not in known:
                    path.unlink(missing_ok=True)
