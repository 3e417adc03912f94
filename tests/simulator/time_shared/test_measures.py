"""What is measured: reservations from their beginning to their end, samples, and section 5."""

from __future__ import annotations

import math

import pytest

from pliant.core.model.nodes import NodeLoad, NodeReservation, ReservationState
from pliant.core.values.ids import NodeName
from pliant.simulator.time_shared.jobs import JobRun, SharedJob
from pliant.simulator.time_shared.measures import Measures
from pliant.simulator.time_shared.settings import MB

RESERVING, RESERVED = ReservationState.RESERVING, ReservationState.RESERVED
N0, N1 = NodeName("n0"), NodeName("n1")


def ended(number: int, submit: float, end: float, queue: float = 0.0) -> JobRun:
    run = JobRun(SharedJob(number, submit, end - submit - queue, 0.0, 0), 0.0)
    run.cpu, run.queue, run.end = end - submit - queue, queue, end
    return run


def reservation(node: NodeName, state: ReservationState, since: float) -> NodeReservation:
    return NodeReservation(node, state, since)


def test_reservations_are_counted_by_how_they_end() -> None:
    measures = Measures()
    measures.reserved(1, [reservation(N0, RESERVING, 1), reservation(N1, RESERVING, 1)], 50)
    measures.reserved(9, [reservation(N0, RESERVED, 9), reservation(N1, RESERVING, 1)], 50)
    measures.reserved(60, [reservation(N0, RESERVED, 9)], 50)
    measures.reserved(61, [reservation(N0, RESERVED, 9), reservation(N1, RESERVING, 61)], 50)
    measures.reserved(62, [reservation(N0, RESERVED, 9)], 50)
    measures.reserved(70, [], 50)
    measures.ended(ended(1, 0, 10))
    measures.sample(0, {N0: NodeLoad(1.0, 0.0)}, [0])
    found = measures.summary(0)
    names = ("reservations", "reservations_used", "reservations_timed_out", "reservations_gone")
    assert [found[name] for name in names] == [3, 1, 1, 1]
    assert found["most_reserved"] == 2


def test_idle_memory_and_skew_leave_reserved_nodes_out() -> None:
    measures = Measures()
    loads = {N0: NodeLoad(10.0 * MB, 4.0 * MB), N1: NodeLoad(10.0 * MB, 30.0 * MB)}
    measures.sample(0, loads, [1, 3])
    measures.reserved(0, [reservation(N1, RESERVED, 0)], math.inf)
    measures.sample(10, {**loads, N1: NodeLoad(10.0 * MB, 9.0 * MB)}, [1, 3])
    measures.ended(ended(1, 0, 10))
    found = measures.summary(0)
    assert found["skew"] == pytest.approx(0.5)  # 1 and 0
    assert found["idle_mb"] == pytest.approx((6 + 7) / 2)
    assert found["idle_normal_mb"] == pytest.approx(6)
    assert found["idle_mb_10s"] == pytest.approx(6.5)
    assert found["idle_mb_30s"] == pytest.approx(6)
    assert found["mean_reserved"] == pytest.approx(0.5)


def test_the_bound_of_section_5_counts_each_job_once_for_each_later_one() -> None:
    measures = Measures()
    measures.reserved(0, [reservation(N0, RESERVED, 0)], math.inf)
    runs = [ended(1, 0, 100), ended(2, 0, 90, 5), ended(3, 0, 120, 7)]
    for arrival, run in zip((10, 20, 95), runs, strict=True):
        queue, run.queue = run.queue, 0.0
        measures.visits_reserved(arrival, N0, run)
        run.queue = queue
        measures.ended(run)
    measures.sample(0, {N0: NodeLoad(1.0, 0.0), N1: NodeLoad(1.0, 0.0)}, [0, 0])
    found = measures.summary(0)
    # Job 1 ends 80 s after the arrival of job 2, job 2 ends before job 3 arrives.
    assert found["reserved_queue_bound_s"] == pytest.approx(2 * 80)
    assert found["reserved_queue_s"] == pytest.approx(12)
    assert found["model_s"] == pytest.approx(found["cpu_s"] + 160)
