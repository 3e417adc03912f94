"""Submit the malleable programs of the tests of whole clusters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from clusterkit.cluster import Cluster
from testkit.repository import ROOT

PROGRAMS = ROOT / "tests" / "e2e" / "apps"


def submit_program(
    cluster: Cluster,
    name: str,
    folder: Path,
    *words: str,
    sizes: str,
    prefer: int,
    resources: Sequence[str] = (),
    bind: str = "rank",
) -> int:
    """Submit a program with a new folder of its own; return the number of the job.

    The first argument of the program is the folder. Its output goes to the file ``out`` there.
    """
    folder.mkdir()
    return cluster.client.submit(
        sys.executable,
        str(PROGRAMS / name),
        str(folder),
        *words,
        sizes=sizes,
        prefer=prefer,
        type="mpi",
        resources=resources,
        bind=bind,
        stdout=str(folder / "out"),
    )
