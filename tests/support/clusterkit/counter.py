"""The counting program of the tests of whole clusters, as a job."""

from __future__ import annotations

from pathlib import Path

from clusterkit.cluster import Cluster
from clusterkit.programs import submit_program


class Counter:
    """The counting program as a job, with the files that steer it."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        sizes: str = "1-6",
        prefer: int = 2,
        bind: str = "rank",
    ) -> None:
        self.cluster, self.folder = cluster, folder
        self.output = folder / "out"
        self.id = submit_program(
            cluster, "counter.py", folder, sizes=sizes, prefer=prefer, bind=bind
        )

    def shut(self, gate: str) -> None:
        """Hold the program back: ``hold``, ``hold-offer``, ``hold-join``."""
        (self.folder / gate).touch()

    def open(self, gate: str) -> None:
        """Let the program go on."""
        (self.folder / gate).unlink()

    def finish(self) -> None:
        """Have it end; it must have found its data right to the last."""
        (self.folder / "stop").touch()
        self.cluster.wait_for(self.id, lambda job: job.final, f"job {self.id} to end")
        job = self.cluster.client.job(self.id)
        assert (job.state, job.exit_code) == ("COMPLETED", 0), self.cluster.report(self.id)
