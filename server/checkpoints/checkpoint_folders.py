"""The checkpoint folders: one for each job, removed when the job has ended.

Only the processes of a job write to its folder, from every node, so all nodes must share the file
system. If jobs run under the accounts of their users, the folders belong to these users, and the
server has no rights to remove them. Then the server orders a node to remove a folder, see
`pliant.server.rpc.checkpoint_removals`.

In this case, every user may also create folders in the base folder, which contains the folders of
all jobs. So the name of a job's folder has a part that nobody can guess. Otherwise a user could
create the folders of later jobs, and these jobs would refuse to save anything there.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pliant.core.values.ids import JobId
from pliant.protos.daemons.remove_tree import remove_tree

log = logging.getLogger(__name__)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class CheckpointFolders:
    """The checkpoint folders of one cluster. Other clusters may use the same base folder."""

    def __init__(self, base: Path, cluster: str, name_part: Callable[[int], str]) -> None:
        """Manage checkpoint folders below ``base``, which need not exist.

        Args:
            base: the folder that contains the folders of all jobs.
            cluster: the short name of the cluster.
            name_part: returns a part of the name of a job's folder, which is secret until the job
                has made the folder.
        """
        self._base, self._cluster, self._name_part = base, cluster, name_part
        #: Open jobs that have a folder with a name of an earlier version, without the secret part.
        self._earlier_names: set[int] = set()
        #: Called with jobs that have ended, and their folders, if these belong to another user.
        self.on_foreign: Callable[[JobId, Path], None] | None = None
        #: Folders that the latest search has skipped.
        self._skipped = 0

    def path_of(self, job: int) -> Path:
        """Return the path of a job's checkpoint folder, which may not exist."""
        if job in self._earlier_names:
            return self._base / f"{self._cluster}.j{job}"
        return self._base / f"{self._cluster}_{self._name_part(job)}.j{job}"

    def on_jobs_closed(self, jobs: Sequence[int], _: object = ()) -> None:
        """Remove the checkpoints of jobs that have ended. The second argument is not used."""
        for job in jobs:
            self._remove(JobId(job), self.path_of(job))
            self._earlier_names.discard(job)

    def sweep(
        self,
        open_jobs: Mapping[JobId, int],
        last_job: int,
        uid_of: Callable[[JobId], int | None],
    ) -> None:
        """Remove the checkpoints of all jobs that are not among ``open_jobs``.

        An earlier server may have stopped before it could remove them. The folders are visited one
        by one, because a list of all of them may be very long.

        Earlier versions of Pliant used folder names without a secret part, so any user can create a
        folder with one of these names. A folder is skipped if it belongs neither to the server's
        account nor to the user of its job. Otherwise a user could create so many folders that the
        server would drop the removals of other users from its queue.

        Args:
            open_jobs: the user id of each job that has not ended, by job number.
            last_job: the highest job number. Folders with a higher number are left alone.
            uid_of: returns the user of a job that has ended, None if the job is unknown.
        """
        name = re.compile(re.escape(self._cluster) + r"(_[0-9a-z]+)?\.j([1-9][0-9]{0,17})")
        try:
            entries = os.scandir(self._base)
        except OSError:
            return  # nothing has ever been saved
        skipped = 0
        example = ""
        with entries:
            for entry in entries:
                match = name.fullmatch(entry.name)
                job = JobId(int(match[2])) if match else None
                if match is None or job is None or job > last_job:
                    continue
                has_earlier_name = match[1] is None
                if job in open_jobs:
                    if has_earlier_name and _belongs_to(entry, open_jobs[job]):
                        self._earlier_names.add(job)
                elif has_earlier_name or entry.name == self.path_of(job).name:
                    if self._is_of_job(entry, job, uid_of):
                        self._remove(job, self._base / entry.name)
                    else:
                        skipped, example = skipped + 1, entry.name
        if skipped > self._skipped:
            log.warning(
                "%d folders in %s, such as %s, stay until an administrator removes them: they do "
                "not belong to the users of their jobs, or these jobs are unknown",
                skipped,
                self._base,
                example,
            )
        self._skipped = skipped

    def _is_of_job(
        self, entry: os.DirEntry[str], job: JobId, uid_of: Callable[[JobId], int | None]
    ) -> bool:
        """Return whether a folder belongs to the server's account or to the user of its job."""
        if self.on_foreign is None or _belongs_to(entry, os.geteuid()):
            return True
        uid = uid_of(job)
        return uid is not None and _belongs_to(entry, uid)

    def _remove(self, job: JobId, folder: Path) -> None:
        try:
            if folder.lstat().st_uid != os.geteuid() and self.on_foreign is not None:
                self.on_foreign(job, folder)
                return
            handle = os.open(self._base, _FOLDER)
        except FileNotFoundError:
            return
        except OSError as error:
            _warn(folder, error.strerror or str(error))
            return
        problems: list[str] = []

        def on_problem(name: str, problem: str) -> None:
            if not problems:
                problems.append(f"{name}: {problem}")

        try:
            remove_tree(folder.name, handle, on_problem)
        except RecursionError:
            problems.append("its folders are nested too deeply")
        finally:
            os.close(handle)
        if problems:
            _warn(folder, problems[0])


def _belongs_to(entry: os.DirEntry[str], uid: int) -> bool:
    try:
        return entry.stat(follow_symlinks=False).st_uid == uid
    except OSError:
        return False


def _warn(folder: Path, problem: str) -> None:
    log.warning("cannot remove the checkpoints in %s: %s", folder, problem)
