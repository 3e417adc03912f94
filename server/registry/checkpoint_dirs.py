"""Where jobs keep their checkpoints: one folder for each, which goes when its job has ended.

Only the processes of a job write there, on whatever node they are; so the folder must be one that
all nodes share.
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
    """The folders of one cluster's jobs; other clusters may keep theirs beside them."""

    def __init__(self, base: Path, cluster: str) -> None:
        """Use ``base``, which need not exist; ``cluster`` is the name of this one."""
        self._base, self._cluster = base, cluster

    def path_of(self, job: int) -> Path:
        """The folder of a job."""
        return self._base / f"{self._cluster}.j{job}"

    def on_jobs_closed(self, jobs: Sequence[int], _: object = ()) -> None:
        """These jobs have ended: remove what they saved."""
        for job in jobs:
            self._remove(self.path_of(job))

    def sweep(self, open_jobs: Collection[JobId]) -> None:
        """Remove what jobs left behind that ended while the server could not clean up."""
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
