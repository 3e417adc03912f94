"""The checkpoint folders: one for each job, removed when the job has ended.

Only the processes of a job write to its folder, from every node, so all nodes must share the file
system. If jobs run as their users, the folders belong to these users, and the server has no rights
to remove them. Then it orders a node to do that, see `pliant.server.rpc.checkpoint_removals`.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from pliant.core.values.ids import JobId

log = logging.getLogger(__name__)


class CheckpointDirs:
    """The checkpoint folders of one cluster. Other clusters may use the same base folder."""

    def __init__(self, base: Path, cluster: str) -> None:
        """Use folders below ``base``, which need not exist; their names contain cluster and job."""
        self._base, self._cluster = base, cluster
        #: Called with jobs that have ended, and whose folders belong to another user.
        self.on_foreign: Callable[[JobId], None] | None = None

    def path_of(self, job: int) -> Path:
        """Return the path of a job's checkpoint folder, which may not exist."""
        return self._base / f"{self._cluster}.j{job}"

    def on_jobs_closed(self, jobs: Sequence[int], _: object = ()) -> None:
        """Remove the checkpoints of jobs that have ended."""
        for job in jobs:
            self._remove(JobId(job))

    def sweep(self, open_jobs: Collection[JobId]) -> None:
        """Remove the checkpoints of all jobs that are not among ``open_jobs``.

        An earlier server may have stopped before it could remove them.
        """
        name = re.compile(re.escape(self._cluster) + r"\.j([0-9]{1,18})")
        try:
            found = list(self._base.iterdir())
        except OSError:
            return  # nothing has ever been saved
        for folder in found:
            match = name.fullmatch(folder.name)
            job = JobId(int(match[1])) if match else None
            if job is not None and job not in open_jobs and folder == self.path_of(job):
                self._remove(job)

    def _remove(self, job: JobId) -> None:
        folder = self.path_of(job)
        try:
            if folder.lstat().st_uid != os.geteuid() and self.on_foreign is not None:
                self.on_foreign(job)
                return
            shutil.rmtree(folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("cannot remove the checkpoints in %s: %s", folder, error)
