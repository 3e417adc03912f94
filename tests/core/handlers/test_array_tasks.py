"""Job arrays in the core: which tasks are jobs, limits, dependencies, ends, and a restart."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.arrays.task_numbers import TaskNumbers, parse_task_numbers
from pliant.core.model.lifecycle import ACTIVE_STATES, JobState
from pliant.core.values.ids import FIRST_START, JobId, NodeName, task_job

ARRAY = 10


@pytest.fixture
def rig() -> Rig:
    return Rig({"n1": 4}, "fcfs")


def task(number: int) -> int:
    return task_job(JobId(ARRAY), number)


def tasks_in(rig: Rig, *states: JobState) -> list[int]:
    found = [job for job in rig.core.jobs.values() if job.spec.array and job.state in states]
    return sorted(job.spec.task for job in found)


def pending(rig: Rig) -> str:
    progress = rig.job(ARRAY).progress
    assert progress is not None
    return str(progress.pending)


def finish(rig: Rig, number: int, code: int = 0) -> None:
    rig.up(task(number))
    rig.exit(task(number), code=code)


def drain(rig: Rig, code_of: dict[int, int] | None = None) -> list[int]:
    """Let all tasks run to their end; return them in the order of their starts."""
    done = []
    while running := tasks_in(rig, *ACTIVE_STATES):
        done.append(running[0])
        finish(rig, running[0], (code_of or {}).get(running[0], 0))
    return done


def reconnect(rig: Rig) -> None:
    """Have the node register after a restart of the server, with the processes that it runs."""
    live = [
        events.LiveWorld(job.id, job.run, FIRST_START, job.occupied, True)
        for job in rig.core.jobs.values()
        if job.state in ACTIVE_STATES
    ]
    rig.do(events.NodeRegistered(NodeName("n1"), 4, worlds=tuple(live)))


def refusal(rig: Rig, event: events.Event) -> str:
    rig.do(event)
    return rig.one(commands.AnswerUser).refusal


def test_only_tasks_that_could_start_become_jobs(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="1-1000")
    assert tasks_in(rig, *ACTIVE_STATES) == [1, 2, 3, 4]
    assert tasks_in(rig, JobState.PENDING) == [5, 6, 7, 8]
    assert pending(rig) == "9-1000"
    assert rig.state(ARRAY) is JobState.PENDING


def test_every_task_runs_once_and_in_order(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="1-30")
    assert drain(rig) == list(range(1, 31))
    assert rig.state(ARRAY) is JobState.COMPLETED
    launches = rig.take(commands.Launch)
    assert [launch.job for launch in launches] == [task(number) for number in range(1, 31)]


def test_a_limit_of_running_tasks_holds(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="0-9:3%2")
    assert tasks_in(rig, *ACTIVE_STATES) == [0, 3]
    finish(rig, 0)
    assert tasks_in(rig, *ACTIVE_STATES) == [3, 6]
    drain(rig)
    assert rig.state(ARRAY) is JobState.COMPLETED


def test_a_released_task_waits_for_the_limit(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="1-5%2")
    rig.do(events.JobHeld(JobId(task(5))))
    assert tasks_in(rig, JobState.HELD) == [5]
    rig.do(events.JobReleased(JobId(task(5))))
    assert tasks_in(rig, JobState.PENDING) == [5]
    assert tasks_in(rig, *ACTIVE_STATES) == [1, 2]
    finish(rig, 1)
    assert tasks_in(rig, *ACTIVE_STATES) == [2, 5]


def test_a_failed_task_fails_the_array_with_the_highest_exit_code(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="1-5")
    rig.submit(1, "1", dependency=f"afterok:{ARRAY}")
    rig.submit(2, "1", dependency=f"afternotok:{ARRAY}")
    drain(rig, {2: 7, 4: 3})
    assert rig.state(ARRAY) is JobState.FAILED
    assert rig.job(ARRAY).exit_code == 7
    assert rig.state(1) is JobState.REJECTED
    assert rig.state(2) is JobState.STARTING


def test_a_job_may_depend_on_all_tasks_or_on_one(rig: Rig) -> None:
    rig.submit(ARRAY, "4", array="1-3")
    rig.submit(101, "4", dependency=f"afterok:{ARRAY}")
    rig.submit(102, "4", dependency=f"afterok:{ARRAY}_2")
    assert "10_2" in rig.job(102).why
    finish(rig, 1)
    assert rig.job(102).dependencies
    finish(rig, 2)
    assert not rig.job(102).dependencies
    assert rig.job(101).dependencies
    finish(rig, 3)
    assert not rig.job(101).dependencies


def test_a_job_after_an_array_waits_until_all_tasks_have_started(rig: Rig) -> None:
    rig.submit(ARRAY, "2", array="1-3")
    rig.submit(1, "1", dependency=f"after:{ARRAY}")
    rig.up(task(1))
    rig.up(task(2))
    assert rig.job(1).dependencies
    finish(rig, 1)
    assert not rig.job(1).dependencies


def test_an_array_starts_with_its_first_task(rig: Rig) -> None:
    rig.submit(ARRAY, "4", array="1-3")
    first = rig.job(task(1)).start
    assert first is not None
    rig.wait(5.0)
    finish(rig, 1)
    rig.up(task(2))
    assert rig.job(task(2)).start == first + 5.0
    assert rig.job(ARRAY).start == first
    assert [note.job for note in rig.notes if note.kind == "array.started"] == [ARRAY]
    rig.restart()
    assert rig.job(ARRAY).start == first


def test_an_array_whose_tasks_are_cancelled_before_they_start_has_no_start(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="1-3", held=True)
    rig.do(events.JobCancelled(JobId(ARRAY), "ann", 1))
    assert (rig.state(ARRAY), rig.job(ARRAY).start) == (JobState.CANCELLED, None)


def test_an_array_may_depend_on_a_job(rig: Rig) -> None:
    rig.run(1, "1")
    rig.submit(ARRAY, "1", array="1-9", dependency="afterok:1")
    assert pending(rig) == "1-9"
    rig.exit(1)
    assert tasks_in(rig, *ACTIVE_STATES) == [1, 2, 3, 4]


def test_an_array_whose_dependency_fails_is_rejected(rig: Rig) -> None:
    rig.run(1, "1")
    rig.submit(ARRAY, "1", array="1-9", dependency="afterok:1")
    rig.exit(1, code=5)
    assert rig.state(ARRAY) is JobState.REJECTED
    assert not tasks_in(rig, *JobState)


def test_a_cancelled_array_ends_when_its_last_task_has(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="1-100")
    rig.up(task(1))
    rig.do(events.JobCancelled(JobId(ARRAY), "ann", 1))
    assert rig.one(commands.AnswerUser).refusal == ""
    assert pending(rig) == ""
    assert rig.state(ARRAY) is JobState.PENDING
    for number in (1, 2, 3, 4):
        rig.exit(task(number))
    assert rig.state(ARRAY) is JobState.CANCELLED
    assert len(tasks_in(rig, JobState.CANCELLED)) == 8  # the others never became jobs


def test_single_tasks_are_cancelled_whether_they_are_jobs_or_not(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="1-20")
    rig.submit(1, "1", dependency=f"afterany:{ARRAY}_15")
    rig.do(events.TasksCancelled(JobId(ARRAY), parse_task_numbers("6,10-18"), "ann", 1))
    assert rig.one(commands.AnswerUser).message.startswith("10 tasks")
    assert tasks_in(rig, JobState.CANCELLED) == [6]
    assert pending(rig) == "19,20"
    assert not rig.job(1).dependencies
    again = events.TasksCancelled(JobId(ARRAY), parse_task_numbers("12"), "ann", 1)
    assert "already ended" in refusal(rig, again)
    assert drain(rig) == [1, 2, 3, 4, 5, 7, 8, 9, 19, 20]
    assert rig.state(ARRAY) is JobState.CANCELLED


def test_hold_and_release_of_an_array(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="1-12")
    rig.do(events.JobHeld(JobId(ARRAY), "ann", 1))
    assert rig.one(commands.AnswerUser).refusal == ""
    assert drain(rig) == [1, 2, 3, 4]
    assert rig.state(ARRAY) is JobState.HELD
    rig.do(events.JobReleased(JobId(ARRAY), "ann", 1))
    assert rig.one(commands.AnswerUser).refusal == ""
    assert drain(rig) == list(range(5, 13))
    assert rig.state(ARRAY) is JobState.COMPLETED


def test_an_array_without_waiting_tasks_cannot_be_held(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="1-2")
    assert "none of its tasks" in refusal(rig, events.JobHeld(JobId(ARRAY), "ann", 1))


def test_a_pending_task_gets_another_priority_alone(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="1-100")
    rig.do(events.PriorityChanged(JobId(task(90)), 5, "root", 1))
    assert rig.one(commands.AnswerUser).refusal == ""
    assert (rig.job(task(90)).priority, rig.job(ARRAY).priority) == (5, 0)
    rig.do(events.PriorityChanged(JobId(ARRAY), 3, "root", 1))
    assert {job.priority for job in rig.core.jobs.values() if job.state is JobState.PENDING} == {3}


def test_malleable_tasks_share_the_processors() -> None:
    rig = Rig({"n1": 4}, "equipartition")
    rig.submit(ARRAY, "1-4", array="1-50")
    assert tasks_in(rig, *ACTIVE_STATES) == [1, 2, 3, 4]


def test_an_array_starts_on_processors_that_come_later(rig: Rig) -> None:
    rig = Rig({}, "fcfs")
    rig.submit(ARRAY, "2", array="1-50")
    rig.do(events.NodeRegistered(NodeName("n1"), 8))
    assert tasks_in(rig, *ACTIVE_STATES) == [1, 2, 3, 4]


@pytest.mark.parametrize("array", ["1-40", "1-40%2", "3,5,8-30:4%3"])
def test_a_restart_loses_no_task_and_runs_none_twice(rig: Rig, array: str) -> None:
    rig.submit(ARRAY, "1", array=array)
    first = tasks_in(rig, *ACTIVE_STATES)
    finish(rig, first[0])
    numbers = parse_task_numbers(array.partition("%")[0])
    last = parse_task_numbers(str(numbers.last))
    rig.do(events.TasksCancelled(JobId(ARRAY), last, "ann", 1))
    before = (tasks_in(rig, *ACTIVE_STATES), pending(rig))
    rig.restart()
    reconnect(rig)
    assert (tasks_in(rig, *ACTIVE_STATES), pending(rig)) == before
    done = [first[0], *drain(rig)]
    assert sorted(done) == list(numbers.without(last))
    assert rig.state(ARRAY) is JobState.CANCELLED


def test_a_restart_keeps_the_limit_when_a_released_task_waits(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="1-5%2")
    rig.do(events.JobHeld(JobId(task(3))))
    finish(rig, 1)
    finish(rig, 2)
    rig.do(events.JobReleased(JobId(task(3))))
    assert tasks_in(rig, *ACTIVE_STATES) == [4, 5]
    rig.restart()
    reconnect(rig)
    assert tasks_in(rig, *ACTIVE_STATES) == [4, 5]
    assert drain(rig) == [4, 3, 5]
    assert rig.state(ARRAY) is JobState.COMPLETED


def test_only_tasks_in_the_named_states_are_cancelled(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="1-100")
    waiting = frozenset({JobState.PENDING})
    rig.do(events.JobCancelled(JobId(ARRAY), "ann", 1, waiting))
    assert rig.one(commands.AnswerUser).refusal == ""
    assert tasks_in(rig, *ACTIVE_STATES) == [1, 2, 3, 4]
    assert not tasks_in(rig, JobState.PENDING)
    assert pending(rig) == ""
    again = events.JobCancelled(JobId(ARRAY), "ann", 1, waiting)
    assert "none of its tasks is PENDING" in refusal(rig, again)
    started = events.JobCancelled(JobId(task(1)), "ann", 1, waiting)
    assert "not PENDING" in refusal(rig, started)
    assert drain(rig) == [1, 2, 3, 4]
    assert rig.state(ARRAY) is JobState.CANCELLED


def test_cancelling_every_third_task_of_many_survives_a_restart(rig: Rig) -> None:
    rig.submit(ARRAY, "1", array="1-100000")
    rig.do(events.TasksCancelled(JobId(ARRAY), parse_task_numbers("10-100000:3"), "ann", 1))
    assert rig.one(commands.AnswerUser).refusal == ""
    rig.restart()
    progress = rig.job(ARRAY).progress
    assert progress is not None
    assert [number for number in range(11, 20) if number in progress.pending] == [
        *(11, 12, 14, 15, 17, 18)
    ]
    scattered = [number for number in range(10, 100_000) if number % 7 in (0, 1, 3)]
    many = TaskNumbers(tuple(range(number, number + 1) for number in scattered))
    assert "separate ranges" in refusal(rig, events.TasksCancelled(JobId(ARRAY), many, "ann", 1))


@pytest.mark.parametrize(
    ("kind", "final"), [("afterok", JobState.REJECTED), ("afterany", JobState.STARTING)]
)
def test_jobs_after_a_task_of_a_rejected_array(rig: Rig, kind: str, final: JobState) -> None:
    rig.run(1, "1")
    rig.submit(ARRAY, "1", array="1-9", dependency="afterok:1")
    rig.do(events.JobHeld(JobId(task(3))))
    rig.submit(2, "1", dependency=f"{kind}:{ARRAY}_7")
    rig.submit(3, "1", dependency=f"{kind}:{ARRAY}_3")
    rig.exit(1, code=5)
    assert rig.state(ARRAY) is JobState.REJECTED
    assert rig.state(task(3)) is JobState.REJECTED
    assert [rig.state(2), rig.state(3)] == [final, final]
    if final is JobState.REJECTED:
        assert f"job {ARRAY}_7 has ended as REJECTED" in rig.job(2).why


def test_a_singleton_array_does_not_wait_for_its_own_held_task(rig: Rig) -> None:
    rig.submit(1, "4", name="sim")
    rig.up(1)
    rig.submit(ARRAY, "1", array="1-3", name="sim", dependency="singleton")
    rig.do(events.JobHeld(JobId(task(2))))
    rig.submit(2, "1", name="sim", dependency="singleton")
    rig.exit(1)
    assert tasks_in(rig, *ACTIVE_STATES) == [1, 3]
    rig.do(events.JobReleased(JobId(task(2))))
    assert drain(rig) == [1, 2, 3]
    assert rig.state(ARRAY) is JobState.COMPLETED
    assert rig.state(2) is JobState.STARTING
