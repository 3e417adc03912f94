"""The checkpoint folders: one for each job, removed when the job has ended.

Only the processes of a job write to its folder, from every node, so all nodes must share the file
system.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from pliant.core.values.ids import JobId

log = logging.getLogger(__name__)


class CheckpointDirs:
    """The checkpoint folders of one cluster. Other clusters may use the same base folder."""

    def __init__(self, base: Path, cluster: str) -> None:
        """Use folders below ``base``, which need not exist; their names contain cluster and job."""
        self._base, self._cluster = base, cluster

    def path_of(self, job: int) -> Path:
        """Return the path of a job's checkpoint folder, which may not exist."""
        return self._base / f"{self._cluster}.j{job}"

    def on_jobs_closed(self, jobs: Sequence[int], _: object = ()) -> None:
        """Remove the checkpoints of jobs that have ended."""
        for job in jobs:
            self._remove(self.path_of(job))

    def sweep(self, open_jobs: Collection[JobId]) -> None:
        """Remove the checkpoints of all jobs that are not among ``open_jobs``.

        An earlier server may have stopped before it could remove them.
        """
        name = re.compile(re.escape(self._cluster) + r"\.j([0-9]+)")
        try:
            found = list(self._base.iterdir())
        except OSError:
            return  # nothing has ever been saved
        for folder in found:
            match = name.fullmatch(folder.name)
            if match and JobId(int(match[1])) not in open_jobs:
                self._remove(folder)

    @staticmethod
    def _remove(folder: Path) -> None:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("cannot remove the checkpoints in %s: %s", folder, error)
