"""Joining ranks that do not come: until GO the application never hears of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultkit import Bed, Beds, Case, run_case
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """The bed outlives a test, and looks for what is left behind after each by itself."""


@pytest.fixture(name="bed", scope="module")
def _bed() -> Iterator[Bed]:
    beds = Beds()
    with beds.use("ofi") as bed:
        yield bed
    beds.close()


@pytest.mark.parametrize(
    "point", ["appkit.move.prepared", "appkit.move.array", "appkit.move.moved"]
)
def test_a_growth_is_rolled_back_when_a_joining_rank_dies(bed: Bed, point: str) -> None:
    result = run_case(bed, Case(point, "kill", "grow", "joining-rank"))
    assert result.verdict == "old size", result.reason
    assert "resize rolled back (move: joining rank" in result.reason


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("fail", "ended: exit code 1"),
        ("die", "ended: killed by signal 9"),
        ("hang", "not prepared within 15 s"),
    ],
)
def test_joining_ranks_that_do_not_come_up(bed: Bed, word: str, reason: str) -> None:
    job = bed.subject(bed.folder(), 2)
    old = {rank.process.pid for rank in bed.cluster.ranks(job.id)}
    (job.folder / "down").write_text(word)
    before = job.beat()[0]
    bed.cluster.client.resize(job.id, 4)
    wait_until(lambda: bed.cluster.history(job.id, "offer.withdrawn"), what="a withdrawal")
    whole = bed.cluster.wait_for(
        job.id, lambda job: (job.state, job.processors) == ("RUNNING", 2), "its former size"
    )
    assert reason in whole.reason
    wait_until(lambda: {r.process.pid for r in bed.cluster.ranks(job.id)} == old, what="only old")
    assert job.beat()[0] > before
    assert not {"resize.go", "resize.begun"} & {e.kind for e in bed.cluster.history(job.id)}
    assert "pliant:" not in job.output.read_text(), "the application was told"
    os.unlink(Path(job.folder, "down"))
    bed.cluster.resize(job.id, 4)
    job.finish()
    bed.check_whole()
