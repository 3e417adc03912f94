"""Every MPI operation of mpi4py on communicators that grew and shrank, on several layouts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.afterwards import idle
from clusterkit.cluster import Cluster
from testkit import ROOT, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(600)]

PROGRAM = ROOT / "benchmarks" / "apps" / "operations"
#: After the start a growth, a second one (so that three worlds are joined), and a shrink.
SIZES = (1, 3, 4, 2)
#: For one operation, also on a loaded machine, seconds; the program ends itself after it.
LIMIT_S = 90
#: For the whole list at one size, seconds.
LIST_LIMIT_S = 300.0
#: Documented as not supported (docs/mpi-operations.md): they raise an error on all ranks.
UNSUPPORTED = {
    "Create_from_group",
    "Create_from_groups",
    "Allocate_shared / Shared_query",
    "Spawn",
    "Spawn_multiple",
    "Revoke",
}


@pytest.fixture(params=[(1, 4), (2, 2)], ids=lambda shape: "{}x{}".format(*shape))
def layout(request: pytest.FixtureRequest, state_dir: Path) -> Iterator[Cluster]:
    """Return a cluster of some nodes with some slots each."""
    nodes, slots = request.param
    cluster = Cluster(state_dir.parent, nodes=nodes, slots=slots, strategy="fcfs")
    cluster.up()
    yield cluster
    idle(cluster)
    cluster.down()


def test_the_list_has_every_public_operation_of_mpi4py() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--list"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    titles = [line.split("\t")[1] for line in done.stdout.splitlines()]
    assert set(titles) >= UNSUPPORTED


def test_every_operation_works_or_raises_an_error_at_every_size(
    layout: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIANT_OPERATION_LIMIT_S", str(LIMIT_S))
    # MPICH sleeps between polls, which otherwise take time from the ranks that are waited for.
    monkeypatch.setenv("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
    results, log = tmp_path / "results", tmp_path / "log"
    job = layout.client.submit(
        *(sys.executable, str(PROGRAM), str(tmp_path)),
        sizes=f"{min(SIZES)}-{max(SIZES)}",
        prefer=SIZES[0],
        chdir=str(tmp_path),
        stdout=str(log),
    )
    layout.wait_malleable(job)
    for resizes, size in enumerate(SIZES):
        if resizes:
            layout.resize(job, size)
        end = f"{resizes}\t{size}\tdone\n"

        def listed(end: str = end) -> bool:
            assert not layout.client.job(job).final, f"{_running(tmp_path)}\n{log.read_text()}"
            return results.exists() and end in results.read_text()

        wait_until(listed, timeout=LIST_LIMIT_S, what=f"all operations at size {size}")
    (tmp_path / "stop").touch()
    assert layout.client.wait(job).state == "COMPLETED", log.read_text()
    wrong = [line for line in results.read_text().splitlines() if not _as_documented(line)]
    assert not wrong


def _as_documented(line: str) -> bool:
    _resizes, _size, title, *result = line.split("\t")
    if not result or result == ["ok"]:
        return True
    return title in UNSUPPORTED and result[0].startswith("unsupported: ")


def _running(folder: Path) -> str:
    running = folder / "running"
    return running.read_text() if running.exists() else "no operation has run"
