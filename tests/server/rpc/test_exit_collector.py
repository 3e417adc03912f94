"""Ends of processes: acknowledged when they are durable, counted once, and worlds forgotten."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

import pytest

from pliant.core.events import ProcessesExited
from pliant.core.model.jobs import Exit, Job, JobSpec, JobType
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import Node
from pliant.core.values.ids import FIRST_START, JobId, NodeName
from pliant.core.values.sizes import Sizes
from pliant.protos import node_pb2
from pliant.server.database.statements import StepOfScript, Write
from pliant.server.database.writer import Writer
from pliant.server.execution.connections import Connections
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.registry.mpi_worlds import World, WorldRegistry
from pliant.server.registry.status_cache import StatusCache
from pliant.server.rpc.exit_collector import NO_RUN, EndReport, ExitCollector
from pliant.server.rpc.report_validation import ReportValidator

A, B = NodeName("a"), NodeName("b")
ONE = JobId(1)


class Around:
    """What the thread talks to: futures that the test resolves, orders that it reads."""

    def __init__(self) -> None:
        self.given: list[tuple[ProcessesExited | None, Future[Any]]] = []
        self.rows: list[Write] = []
        self.acks: list[list[int]] = []

    def commit(self, event: ProcessesExited, rows: Sequence[Write]) -> Future[Any]:
        self.rows += rows
        self.given.append((event, Future()))
        return self.given[-1][1]

    def call(self, _: Callable[[Any], Any]) -> Future[Any]:
        self.given.append((None, Future()))
        return self.given[-1][1]

    def send_to_node(self, _: NodeName, order: node_pb2.NodeOrder) -> bool:
        self.acks.append(list(order.exit_ack.ranks))
        return True

    def close_job(self, _: JobId) -> None:
        pass


class Desk:
    """The remove thread's work, done by the test, on a job of three ranks on two nodes."""

    def __init__(self) -> None:
        self.around, self.status, self.worlds = Around(), StatusCache(), WorldRegistry("c")
        self.status.publish_nodes([Node(A, 0, 2), Node(B, 2, 2)])
        self.put(JobState.RUNNING)
        name = self.worlds.name(ONE, 1, FIRST_START)
        self.world = World(name, ONE, 1, FIRST_START, 1, (0, 1, 2), frozenset({A, B}))
        self.worlds.add(self.world)
        self.dropped: list[str] = []
        self.remove = ExitCollector(
            cast(CoreLoop, self.around),
            cast(Connections, self.around),
            self.worlds,
            self.status,
            cast(Writer, Dropped()),
            ReportValidator(self.worlds, self.status),
        )
        self.remove.on_closed.append(lambda _, worlds: self.dropped.extend(w.name for w in worlds))

    def put(self, state: JobState) -> None:
        spec = JobSpec(ONE, "job", "ann", JobType.MPI, Sizes((3,)), 0.0)
        self.status.publish_jobs([Job(spec, state)])

    def report(self, *ranks: int, node: NodeName = A, processor: int | None = None) -> None:
        places = [rank if processor is None else processor for rank in ranks]
        exits = tuple(Exit(place, 0) for place in places)
        event = ProcessesExited(ONE, 1, FIRST_START, exits)
        times = tuple(0.0 for _ in ranks)
        self.remove.report(EndReport(node, self.world.name, ranks, times, event))
        self.work()

    def work(self) -> None:
        self.remove.stop()  # ends `run` after what is queued
        self.remove.run()

    def resolve(self, place: int, error: Exception | None = None) -> ProcessesExited | None:
        event, future = self.around.given[place]
        future.set_exception(error) if error else future.set_result(None)
        self.work()
        return event


class Dropped:
    """A writer that takes everything."""

    def commit(self, _: Sequence[Write]) -> Future[None]:
        return Future()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_an_end_is_acknowledged_when_it_is_durable(desk: Desk) -> None:
    desk.report(0, 1)
    assert desk.around.acks == []
    desk.resolve(0)
    assert desk.around.acks == [[0, 1]]


@pytest.mark.case(17)
def test_an_end_that_could_not_be_stored_is_new_when_it_is_reported_again(desk: Desk) -> None:
    desk.report(0)
    desk.resolve(0, OSError("disk"))
    assert desk.around.acks == []
    desk.report(0)
    event = desk.resolve(1)
    assert event is not None
    assert [end.processor for end in event.exits] == [0]
    assert (desk.around.acks, len(desk.around.rows)) == ([[0]], 2)


def test_the_steps_of_a_script_are_stored_with_its_end(desk: Desk) -> None:
    step = StepOfScript(1, "prepare\n", 2, 1.0, 2.0, 3, 0, ((1.0, 2),), 2.0)
    event = ProcessesExited(ONE, 1, FIRST_START, (Exit(0, 0), Exit(1, 0)))
    report = EndReport(A, desk.world.name, (0, 1), (0.0, 0.0), event, {0: (step,)})
    for _ in range(2):
        desk.remove.report(report)
        desk.work()
    steps = [row.values for row in desk.around.rows if "number" in row.values]
    found = [(row["world"], row["number"], row["code"]) for row in steps]
    assert found == [(desk.world.name, 1, 3)]
    assert "\n" not in steps[0]["name"]
    assert json.loads(steps[0]["sizes"]) == [[1.0, 2]]


def test_a_repetition_is_not_acknowledged_before_the_first_is_durable(desk: Desk) -> None:
    desk.report(0)
    desk.report(0, 1)
    event, _ = desk.around.given[1]
    assert event is not None
    assert [end.processor for end in event.exits] == [1]
    desk.resolve(0, OSError("disk"))
    desk.resolve(1)
    assert desk.around.acks == [[1]]


def test_a_world_is_forgotten_when_its_last_end_is_durable(desk: Desk) -> None:
    desk.report(0, 1)
    desk.report(2, node=B)
    desk.resolve(0)
    assert desk.worlds.get(desk.world.name) is desk.world
    desk.resolve(1)
    assert desk.worlds.get(desk.world.name) is None
    assert desk.dropped == [desk.world.name]
    desk.report(2, node=B)  # its acknowledgement was lost
    event = desk.resolve(2)
    assert event is not None
    assert (event.run, len(event.exits)) == (NO_RUN, 1)
    assert desk.around.acks == [[0, 1], [2], [2]]


def test_after_a_restart_what_was_durable_counts(desk: Desk) -> None:
    for rank in (0, 1):
        desk.remove.restore(ONE, desk.world.name, rank)
    desk.report(1, 2)
    event = desk.resolve(0)
    assert event is not None
    assert [end.processor for end in event.exits] == [2]
    assert desk.around.acks == [[1, 2]]
    assert desk.worlds.get(desk.world.name) is None


def test_of_an_ended_job_a_node_empties_only_its_own_processors(desk: Desk) -> None:
    desk.put(JobState.COMPLETED)
    desk.report(0, processor=2)
    assert desk.resolve(0) is None
    desk.report(0)
    event = desk.resolve(1)
    assert event is not None
    assert [end.processor for end in event.exits] == [0]
    assert (desk.around.acks, desk.around.rows) == ([[0], [0]], [])


@pytest.mark.case(31)
def test_of_a_world_that_nobody_here_began_processors_are_emptied(desk: Desk) -> None:
    """The job waits in the older copy of the database that was put back; it ran since."""
    desk.put(JobState.PENDING)
    desk.worlds.forget(ONE)
    desk.report(0, 1)
    event = desk.resolve(0)
    assert event is not None
    assert (event.run, [end.processor for end in event.exits]) == (NO_RUN, [0, 1])
    assert (desk.around.acks, desk.around.rows) == ([[0, 1]], [])


@pytest.mark.case(31)
def test_of_a_world_that_began_elsewhere_processors_are_emptied(desk: Desk) -> None:
    """As above, and the job was started again before its earlier processes were gone."""
    desk.worlds.forget(ONE)
    desk.worlds.add(replace(desk.world, processors=(2,), nodes=frozenset({B})))
    desk.report(0, processor=1)
    event = desk.resolve(0)
    assert event is not None
    assert (event.run, [end.processor for end in event.exits]) == (NO_RUN, [1])
    desk.report(0, node=B, processor=2)
    event = desk.resolve(1)
    assert event is not None
    assert (event.run, [end.processor for end in event.exits]) == (1, [2])
