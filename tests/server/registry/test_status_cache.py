"""The status forgets jobs that ended long ago, and looks only at those that it must."""

from __future__ import annotations

import pytest

from pliant.core.model.jobs import Job, JobSpec, JobType
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import Node
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import from_indices
from pliant.core.values.resources import parse_needs
from pliant.core.values.sizes import Sizes
from pliant.server.registry.job_program import Summary
from pliant.server.registry.status_cache import ENDED_JOBS_KEPT_S, StatusCache


class Counted(dict[JobId, object]):
    """A dictionary that tells when somebody looks at all of it."""

    looks = 0

    def items(self):  # type: ignore[no-untyped-def]
        self.looks += 1
        return super().items()


def job(number: int, end: float | None = None) -> Job:
    spec = JobSpec(JobId(number), f"job{number}", "ann", JobType.MPI, Sizes((1,)), 0.0)
    if end is None:
        return Job(spec, JobState.RUNNING, ranks=(number,), occupied=from_indices([number]))
    return Job(spec, JobState.COMPLETED, end=end)


def numbers(status: StatusCache, since: float | None = None) -> list[int]:
    return [info["id"] for info in status.jobs(ended_since=since)]


def test_jobs_are_taken_down_in_the_order_of_their_ends() -> None:
    status = StatusCache()
    for number, end in enumerate((30.0, 10.0, 20.0), 1):
        status.publish_summary(JobId(number), Summary("", "", f"command {number}"))
        assert status.publish_jobs([job(number, end)]) == [number]
    status.drop_old(ENDED_JOBS_KEPT_S + 15.0)
    assert numbers(status, 0.0) == [1, 3]
    status.drop_old(ENDED_JOBS_KEPT_S + 30.0)
    assert numbers(status, 0.0) == [1]
    status.publish_jobs([job(number, 100.0) for number in (1, 2, 3)])
    assert [info["command"] for info in status.jobs(ended_since=0.0)] == ["command 1", "", ""]


def test_a_job_ends_once() -> None:
    status = StatusCache()
    assert status.publish_jobs([job(1)]) == []
    assert status.publish_jobs([job(1, 5.0), job(1, 5.0)]) == [1]
    status.drop_old(ENDED_JOBS_KEPT_S + 6.0)
    status.drop_old(ENDED_JOBS_KEPT_S + 6.0)
    assert status.entry(JobId(1)) is None


@pytest.mark.parametrize(
    ("ranks", "held", "shown"),
    [
        ((0, 1), (0, 1), (2, 2)),
        ((0, 1), (0, 1, 2, 3), (2, 4)),  # offered more, or its leavers have not gone
        ((0, 1), (1,), (1, 1)),  # it is ending
        ((0, 1), (), (0, 0)),
        ((), (), (0, 0)),
    ],
)
def test_what_a_job_runs_on_is_not_all_that_it_holds(
    ranks: tuple[int, ...], held: tuple[int, ...], shown: tuple[int, int]
) -> None:
    status, mine = StatusCache(), job(1)
    mine.ranks, mine.occupied = ranks, from_indices(held)
    status.publish_jobs([mine])
    info = status.job(JobId(1))
    assert info is not None
    assert (info["processors"], info["held"]) == shown


def test_ended_jobs_cost_nothing() -> None:
    status = StatusCache()
    status._jobs = counted = Counted()  # type: ignore[assignment]
    status.publish_nodes([Node(NodeName("n1"), 0, 4)])
    status.publish_jobs([job(1, 1.0), job(2, 2.0), job(3)])
    status.drop_old(ENDED_JOBS_KEPT_S + 1.5)
    assert numbers(status) == [3]
    assert status.nodes()[0]["jobs"] == [3]
    assert counted.looks == 0


def test_use_of_named_resources_follows_from_what_jobs_hold() -> None:
    status = StatusCache()
    status.resources = {"lic": 8, "tok": 1}
    needs = parse_needs(["lic=2/proc", "tok=1"])
    spec = JobSpec(JobId(1), "job", "ann", JobType.MPI, Sizes((2,)), 0.0, resources=needs)
    status.publish_jobs([Job(spec, JobState.PENDING)])
    assert status.resource_use()["lic"] == {"total": 8, "used": 0, "free": 8}
    status.publish_jobs([Job(spec, JobState.PENDING, reserved=from_indices([0, 1]))])
    assert status.resource_use()["lic"]["free"] == 4, "promised to a job, so that no other gets it"
    status.publish_jobs(
        [Job(spec, JobState.RUNNING, ranks=(0, 1), occupied=from_indices([0, 1, 2]))]
    )
    assert status.resource_use() == {
        "lic": {"total": 8, "used": 6, "free": 2},
        "tok": {"total": 1, "used": 1, "free": 0},
    }
    info = status.job(JobId(1))
    assert info is not None
    assert info["resources"] == ["lic=2/proc", "tok=1"]
