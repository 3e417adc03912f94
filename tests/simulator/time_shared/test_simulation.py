"""Time-shared nodes: cases whose ends are known, and what holds in every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliant.core.model.views_and_plans import Availability, Plan, Start, View, WaitingJob
from pliant.core.values.processors import block
from pliant.simulator.inputs.simulation_errors import NoProgressError, StrategyFaultError
from pliant.simulator.inputs.workload import WorkloadError
from pliant.simulator.time_shared.jobs import JobRun, SharedJob
from pliant.simulator.time_shared.settings import MB, TimeSharedSettings
from pliant.simulator.time_shared.simulation import simulate_shared
from pliant.simulator.time_shared.workload import ChenWorkload
from pliant.strategies import Strategy

#: One node without context switches, whose jobs have their whole demand from the beginning.
ONE = TimeSharedSettings(
    nodes=1, slots=6, memory_mb=345.6, user_share=1.0, context_switch_s=0.0, ramp=0.0
)
NAMES = ("load-sharing", "load-sharing+suspend", "v-reconfiguration")


def job(
    number: int, cpu_s: float, demand_mb: float, submit: float = 0.0, home: int = 0
) -> SharedJob:
    return SharedJob(number, submit, cpu_s, demand_mb * MB, home)


def ends(runs: Sequence[JobRun]) -> list[float | None]:
    return [run.end for run in runs]


# ---------------------------------------------------------------- known ends


def test_two_jobs_that_fit_share_the_processor() -> None:
    _, runs = simulate_shared([job(1, 100, 10), job(2, 50, 10)], ONE)
    assert ends(runs) == pytest.approx([100, 150])


def test_a_job_with_half_more_demand_than_memory_pages_five_times_as_long_as_it_computes() -> None:
    _, (run,) = simulate_shared([job(1, 100, 150)], replace(ONE, memory_mb=100))
    assert run.end == pytest.approx(600)


@pytest.mark.parametrize(
    ("jobs", "overlap", "end", "page"),
    [
        (3, True, 701.39, 233.80),
        (3, False, 1001.39, 233.80),
        (2, True, 200.00, 67.13),
        (2, False, 334.26, 67.13),
    ],
)
def test_jobs_that_page_together(jobs: int, overlap: bool, end: float, page: float) -> None:
    alike = [job(number, 100, 196) for number in range(1, jobs + 1)]
    _, runs = simulate_shared(alike, replace(ONE, overlap=overlap))
    for run in runs:
        assert run.end == pytest.approx(end, abs=0.005)
        assert (run.cpu, run.page) == pytest.approx((100, page), abs=0.005)
        assert run.queue == pytest.approx(end - 100 - page, abs=0.01)


def test_a_faster_node_does_the_same_work_in_less_time() -> None:
    _, (run,) = simulate_shared([job(1, 100, 10)], replace(ONE, speed=4.0))
    assert run.end == pytest.approx(25)
    assert run.cpu == pytest.approx(25)


def test_context_switches_take_their_part() -> None:
    _, (run,) = simulate_shared([job(1, 100, 10)], replace(ONE, context_switch_s=0.1))
    assert run.end == pytest.approx(200)
    assert run.queue == pytest.approx(100)


def test_a_move_takes_the_time_of_the_memory_image() -> None:
    # Three jobs page on node 0 until the first report after their start.
    jobs = [job(1, 100, 196), job(2, 100, 196), job(3, 100, 196)]
    metrics, runs = simulate_shared(jobs, replace(ONE, nodes=2))
    (moved,) = (run for run in runs if run.migration)
    image = 0.1 + 196 * MB * 8 / 10e6
    assert moved.job.id == 1
    assert moved.migration == pytest.approx(image)
    assert moved.end == pytest.approx(1 + image + 100 - 0.142575, abs=0.001)
    assert (metrics["migrations"], metrics["remote_starts"]) == (1, 0)


def test_a_job_whose_home_is_full_starts_elsewhere() -> None:
    jobs = [job(1, 100, 400), job(2, 100, 50, submit=5)]
    metrics, runs = simulate_shared(jobs, replace(ONE, nodes=2))
    assert metrics["remote_starts"] == 1
    assert runs[0].end == pytest.approx(5 + 0.1 + 100)


def test_demands_grow_over_the_first_part_of_the_processor_time() -> None:
    loads: list[float] = []

    class Watched(Strategy):
        def allocate_processors(self, view: View) -> Plan:
            loads.extend(load.demand / MB for load in view.loads.values())
            free = view.waiting[:1]
            return Plan(starts=tuple(Start(each.id, block(0, 1)) for each in free))

    simulate_shared([job(1, 100, 80)], replace(ONE, ramp=0.5, strategy=Watched()))
    assert loads[25] == pytest.approx(40, rel=0.02)
    assert loads[50] == pytest.approx(80, rel=0.02)
    assert loads[90] == pytest.approx(80)


# ---------------------------------------------------------------- in every run


@st.composite
def workloads(draw: st.DrawFn) -> list[SharedJob]:
    numbers = range(1, draw(st.integers(2, 25)) + 1)
    return [
        job(
            number,
            draw(st.integers(1, 200)),
            draw(st.sampled_from((0, 5, 40, 60, 70, 130))),
            draw(st.integers(0, 60)) / 2,
            draw(st.integers(0, 3)),
        )
        for number in numbers
    ]


@pytest.mark.parametrize("strategy", NAMES)
def test_every_job_ends_and_every_second_is_accounted_for(strategy: str) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(workloads(), st.sampled_from((0.0, 0.5, 1.0)), st.booleans(), st.sampled_from((1, 7)))
    def holds(jobs: list[SharedJob], ramp: float, overlap: bool, period: int) -> None:
        machine = TimeSharedSettings(
            nodes=4,
            memory_mb=100,
            slots=3,
            ramp=ramp,
            overlap=overlap,
            load_period_s=period,
            bandwidth_mbit=100,
            strategy=strategy,
            options={"max-reserved": 0.5} if strategy == "v-reconfiguration" else {},
        )
        # The simulator checks the accounts, the slots, and that reserved nodes get no new jobs.
        metrics, runs = simulate_shared(jobs, machine)
        assert sorted(run.job.id for run in runs) == [each.id for each in jobs]
        assert metrics["most_reserved"] <= 2
        parts = sum(metrics[name] for name in ("cpu_s", "page_s", "queue_s", "migration_s"))
        assert metrics["execution_s"] == pytest.approx(parts)
        assert simulate_shared(jobs, machine)[0] == metrics

    holds()


def test_reconfiguration_changes_nothing_when_all_jobs_fit() -> None:
    workload = ChenWorkload(group=1, trace=1, jobs=60, demand_mb=80.0)
    jobs = workload.make(1, 8)
    machine = TimeSharedSettings(nodes=8, slots=4)
    plain, _ = simulate_shared(jobs, machine)
    reconfigured, _ = simulate_shared(jobs, replace(machine, strategy="v-reconfiguration"))
    assert reconfigured == plain
    assert plain["page_s"] == 0


def test_a_large_node_among_small_ones_is_reserved_for_the_largest_job() -> None:
    # Jobs 1 and 2 page on node 0; only node 2 is large enough for job 1, and others fill it.
    jobs = [job(1, 400, 150), job(2, 400, 60), *(job(n, 60, 70, home=2) for n in (3, 4, 5))]
    jobs += [job(6, 400, 80, home=1), job(7, 400, 10, home=1)]
    machine = replace(
        ONE,
        nodes=2,
        memory_mb=100,
        more_nodes="1x240",
        slots=3,
        strategy="v-reconfiguration",
        options={"max-reserved": 0.4, "migrate": False},
    )
    metrics, runs = simulate_shared(jobs, machine)
    (moved,) = (run for run in runs if run.migration and run.id == 1)
    assert moved.node == 2
    assert metrics["reservations_used"] == 1


@pytest.mark.parametrize("trace", [3, 5])
def test_reconfiguration_changes_nothing_under_light_load(trace: int) -> None:
    jobs = ChenWorkload(group=1, trace=trace, share=0.1).make(1, 32)
    machine = TimeSharedSettings(slots=6)
    plain, _ = simulate_shared(jobs, machine)
    reconfigured, _ = simulate_shared(jobs, replace(machine, strategy="v-reconfiguration"))
    assert reconfigured == plain
    assert plain["reservations"] == 0


def test_one_job_larger_than_every_node_does_not_delay_the_others() -> None:
    jobs = ChenWorkload(group=1, trace=3, share=0.2).make(1, 32)
    jobs.append(SharedJob(1000, 600.0, 500.0, 1.5 * 345.6 * MB, 0))
    machine = TimeSharedSettings(slots=6)
    walls = []
    for strategy in ("load-sharing", "v-reconfiguration"):
        _, runs = simulate_shared(jobs, replace(machine, strategy=strategy))
        walls.append(sum(run.wall_s for run in runs if run.id != 1000) / (len(runs) - 1))
    assert walls[1] == pytest.approx(walls[0], rel=0.02)


def test_the_threshold_of_the_former_draft_never_detects_a_blocked_node() -> None:
    # 100 faults per second of processor time are at most 33 per second on the disk.
    jobs = ChenWorkload(group=1, trace=3, jobs=80).make(1, 4)
    draft = TimeSharedSettings(nodes=4, slots=4, faults=100, ramp=0.1)
    options = {"fault_threshold": 50, "early": False, "parallel": 1, "reserve_timeout": 300}
    plain, _ = simulate_shared(jobs, replace(draft, options={"fault_threshold": 50}))
    reserving = replace(draft, strategy="v-reconfiguration", options=options)
    assert simulate_shared(jobs, reserving)[0] == plain
    assert plain["page_s"] > 0


@pytest.mark.parametrize("strategy", NAMES)
def test_a_job_larger_than_every_node_ends(strategy: str) -> None:
    jobs = ChenWorkload(group=1, trace=5, jobs=40).make(2, 4)
    jobs.append(SharedJob(99, 10.0, 300.0, 1.5 * 384 * MB, 0))
    machine = TimeSharedSettings(nodes=4, slots=4, strategy=strategy)
    _, runs = simulate_shared(jobs, machine)
    assert len(runs) == 41


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("jobs", "fault"),
    [
        ([], "no jobs"),
        ([job(1, 1, 1), job(1, 1, 1)], "twice"),
        ([job(1, 0, 1)], "cpu_s"),
        ([job(1, 1, 1, home=4)], "home 4"),
    ],
)
def test_jobs_that_make_no_sense_are_refused(jobs: list[SharedJob], fault: str) -> None:
    with pytest.raises(WorkloadError, match=fault):
        simulate_shared(jobs, ONE)


class Foolish(Strategy):
    """Returns a plan that it was given."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        return Availability(None, None, 0, "it does not know")

    def allocate_processors(self, view: View) -> Plan:
        return self._plan


def test_plans_that_do_not_fit_are_the_strategys_fault() -> None:
    twice = Plan(starts=(Start(1, block(0, 1)), Start(2, block(0, 1))))  # type: ignore[arg-type]
    with pytest.raises(StrategyFaultError, match="not there"):
        simulate_shared([job(1, 5, 1), job(2, 5, 1)], replace(ONE, strategy=Foolish(twice)))


def test_a_strategy_that_starts_nothing_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pliant.simulator.time_shared.simulation.MAX_STALLED_S", 50.0)
    with pytest.raises(NoProgressError):
        simulate_shared([job(1, 5, 1)], replace(ONE, strategy=Foolish(Plan())))
