"""Several clusters in time. Expected values are computed by hand, or come from other simulators."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corekit.simkit import by_id, job, rigid
from pliant.core.model.lifecycle import JobState
from pliant.simulator import Cluster, Result, Settings, SimJob, WorkloadError, simulate
from pliant.simulator.inputs.models import make
from pliant.simulator.inputs.simulation_errors import NoProgressError
from pliant.simulator.multicluster.grid_jobs import GridJob
from pliant.simulator.multicluster.settings import (
    Latencies,
    LocalJob,
    LocalUsers,
    MulticlusterSettings,
    Outage,
    Policy,
)
from pliant.simulator.multicluster.simulate_clusters import simulate_clusters
from pliant.strategies.multicluster.file_transfers import FileCatalogue
from pliant.strategies.policies.koala_precedence import Limits, Precedence

#: Runs of a simulator that was written independently from the paper: nothing takes time, and nobody
#: else uses the clusters. Those with one seed on five clusters, and on the small cluster.
REFERENCE = [
    row
    for row in csv.DictReader(
        Path(__file__).with_name("reference-runs.csv").read_text().splitlines()
    )
    if row["seed"] == "1" and not row["machine"].endswith(":100")
]
GAPS = {"Wm": (120, 0.0), "Wmr": (120, 0.5), "W'm": (30, 0.0), "W'mr": (30, 0.5)}
TWO = (Cluster("a", 4), Cluster("b", 4))


def run(*jobs: GridJob | SimJob, clusters: tuple[Cluster, ...] = TWO, **more: Any) -> Result:
    given = [each if isinstance(each, GridJob) else GridJob(each) for each in jobs]
    return simulate_clusters(given, MulticlusterSettings(clusters, **more))


def named(row: dict[str, str]) -> str:
    size = "five" if "," in row["machine"] else row["machine"]
    return f"{size}-{row['order']}-{row['policy']}-{row['workload']}"


@pytest.mark.parametrize("row", REFERENCE, ids=named)
def test_ideal_runs_are_those_of_an_independent_simulator(row: dict[str, Any]) -> None:
    gap, part = GAPS[row["workload"]]
    model = make("koala", {"gap": gap, "rigid": part, "seed": row["seed"]})
    pairs = (text.split(":") for text in row["machine"].split(","))
    clusters = tuple(Cluster(name, int(size)) for name, size in pairs)
    found = run(
        *model.jobs, clusters=clusters, policy=row["policy"], precedence=row["order"]
    ).metrics
    for name in ("mean_wait_s", "mean_execution_s", "mean_turnaround_s"):
        assert found[name] == pytest.approx(float(row[name]), abs=2e-6)
    assert found["area"] == pytest.approx(float(row["area"]), rel=1e-8)
    assert abs(found["adaptations"] - int(row["adaptations"])) <= 1


GRAMMARS = ["1", "2", "3", "2-4", "1-8", "2-16:pow2", "2-6:+2", "1-16", "{1,2,4}", "2-46"]


@st.composite
def workloads(draw: st.DrawFn) -> list[SimJob]:
    return [
        job(
            number,
            float(draw(st.integers(0, 40))),
            draw(st.sampled_from(GRAMMARS)),
            float(draw(st.integers(1, 300))),
        )
        for number in range(1, draw(st.integers(1, 12)) + 1)
    ]


@settings(max_examples=60, deadline=None)
@given(
    workloads(),
    st.lists(st.integers(4, 16), min_size=1, max_size=3),
    st.sampled_from(["fpsma", "egs"]),
    st.sampled_from(["pra", "pwa"]),
    st.sampled_from([0, 0, 1, 3]),
    st.sampled_from([None, None, 12, 20]),
)
def test_on_exact_information_the_results_are_those_of_the_simulator_of_one_server(
    jobs: list[SimJob],
    sizes: list[int],
    policy: Policy,
    precedence: Precedence,
    threshold: int,
    cap: int | None,
) -> None:
    clusters = tuple(Cluster(f"c{number}", size) for number, size in enumerate(sizes))
    options: dict[str, object] = {"threshold": threshold}
    if cap is not None:
        options["cap"] = cap
    one = simulate(
        jobs, Settings(strategy=f"{policy}+{precedence}", clusters=clusters, options=options)
    )
    limits = Limits(threshold=threshold, cap=cap)
    several = run(*jobs, clusters=clusters, policy=policy, precedence=precedence, limits=limits)
    for number, expected in by_id(one).items():
        found = by_id(several)[number]
        assert found.start == pytest.approx(expected.start, abs=1e-9)
        assert found.end == pytest.approx(expected.end, abs=1e-9)
        assert (found.resizes, found.processors, found.final_size, found.state) == (
            expected.resizes,
            expected.processors,
            expected.final_size,
            expected.state,
        )


# ---------------------------------------------------------------- polls and queue


def test_between_polls_only_new_jobs_are_tried() -> None:
    records = by_id(
        run(
            rigid(1, 0, 4, 12), rigid(2, 0, 4, 50), rigid(3, 1, 2, 5), rigid(4, 13, 1, 5), poll_s=10
        )
    )
    # Cluster a is idle from 12 s on, but the scheduler learns it at the next poll.
    assert [records[number].start for number in (1, 2, 3, 4)] == [0, 0, 20, 20]


def test_tries_are_counted_per_poll_and_too_many_end_the_job() -> None:
    result = run(
        rigid(1, 0, 4, 100), rigid(2, 0, 4, 100), rigid(3, 1, 2, 5), poll_s=10, max_tries=3
    )
    record = by_id(result)[3]
    # It fails on arrival and at the polls of 10, 20 and 30 s.
    assert (record.state, record.end) == (JobState.REJECTED, 30)
    assert "placement tries: 4" in record.reason
    assert (result.metrics["rejected"], result.metrics["failed_tries"]) == (1, 4)


def test_components_are_placed_together_and_overtaken_until_they_fit() -> None:
    wide = GridJob(rigid(2, 1, 7, 10), components=(4, 3))
    records = by_id(run(rigid(1, 0, 2, 30), wide, rigid(3, 2, 4, 5)))
    assert [records[number].start for number in (1, 2, 3)] == [0, 30, 2]


# ---------------------------------------------------------------- claims

FILES = FileCatalogue(
    ("a", "b"), {"mesh": 30.0}, {"mesh": ["b"]}, {("b", "a"): 1.0, ("a", "b"): 1.0}
)


def test_a_claim_fails_if_a_local_user_was_faster_and_the_job_starts_elsewhere() -> None:
    # Placed in a (by name), planned start at 30 s after the transfer, claimed at 15 s.
    staged = GridJob(rigid(1, 0, 4, 10), files=(("mesh",),))
    local = (("a", (LocalJob(12, 4, 100),)),)
    result = run(staged, files=FILES, poll_s=10, lead_s=15, local_jobs=local)
    assert result.metrics["failed_claims"] == 1
    assert by_id(result)[1].start == 20
    # With reservations the processors are taken at once, and the local user waits.
    other = rigid(2, 50, 1, 1)
    reserved: dict[str, Any] = {"local_jobs": local, "reservations": True}
    result = run(staged, other, files=FILES, poll_s=10, lead_s=15, **reserved)
    assert (result.metrics["failed_claims"], by_id(result)[1].start) == (0, 30)
    assert result.metrics["local_wait_s"] == 28


def test_a_job_that_cannot_claim_one_component_holds_nothing_elsewhere() -> None:
    both = GridJob(rigid(1, 0, 8, 10), components=(4, 4), files=(("mesh",), ()))
    local = (("a", (LocalJob(12, 1, 5), LocalJob(16, 3, 100))), ("b", (LocalJob(16, 4, 100),)))
    result = run(both, files=FILES, poll_s=10, lead_s=15, local_jobs=local)
    assert result.metrics["failed_claims"] == 1
    assert result.metrics["local_wait_s"] == 0
    assert by_id(result)[1].start == 120 + 30


def test_a_job_whose_files_cannot_reach_its_cluster_is_tried_again() -> None:
    lonely = FileCatalogue(("a", "b"), {"mesh": 1.0}, {"mesh": ["b"]})
    staged = GridJob(rigid(1, 0, 2, 5), files=(("mesh",),))
    assert by_id(run(staged, files=lonely, limits=Limits(placement="cf")))[1].start == 0
    record = by_id(run(staged, files=lonely, max_tries=2, poll_s=10))[1]
    assert record.state is JobState.REJECTED


# ---------------------------------------------------------------- stubs and adaptations

SLOW = Latencies(first_stub_s=4, growth_stub_s=5, stub_gap_s=2, pause_s=3, release_s=2)
ONE = (Cluster("a", 8),)


def test_a_growth_takes_its_stubs_its_pause_and_no_computing_time_before() -> None:
    small = (Cluster("a", 4),)
    record = by_id(run(job(1, 0, "2-4", 100), clusters=small, poll_s=5, latencies=SLOW))[1]
    # It starts at 4 s. At 5 s two stubs are ordered: submitted at 5 and 7, active at 10 and 12 s.
    # The program has done 16 s of work, stands still until 15 s, and does the rest on 4.
    assert (record.start, record.resizes) == (4, 1)
    assert record.end == 15 + (100 - 16) / 4


def test_the_time_to_adapt_may_be_that_of_the_application() -> None:
    small = (Cluster("a", 4),)
    spec = GridJob(job(1, 0, "2-4", 100), pause_s=13)
    record = by_id(run(spec, clusters=small, poll_s=5, latencies=SLOW))[1]
    assert record.end == 25 + (100 - 16) / 4


def test_a_shrinking_program_continues_before_its_processors_are_returned() -> None:
    latencies = Latencies(pause_s=3, release_s=2)
    records = by_id(
        run(
            job(1, 0, "2-8", 400),
            rigid(2, 20, 4, 10),
            clusters=ONE,
            precedence="pwa",
            poll_s=10,
            latencies=latencies,
        )
    )
    # Growth at 0 s, 3 s pause; shrink to 4 from 20 s, continues at 23 s, claimed at 25 s.
    assert records[2].start == 25
    work_left = 400 - 8 * 17
    # When the other job has ended (35 s, released at 37 s), it grows at the poll of 40 s.
    assert records[1].end == 43 + (work_left - 4 * (40 - 23)) / 8


def test_stubs_without_a_processor_are_lost_and_the_program_takes_what_its_sizes_allow() -> None:
    taken = (("a", (LocalJob(6, 3, 1000),)),)
    stale: dict[str, Any] = {"poll_s": 10, "snapshot_s": 1000, "local_jobs": taken}
    stale["latencies"] = Latencies(first_stub_s=4)
    limits = Limits(threshold=0)
    result = run(job(1, 1, "2-8", 800), clusters=ONE, limits=limits, **stale)
    # Nothing is known of the local user: six stubs are submitted, three find a processor.
    assert (result.metrics["lost_stubs"], by_id(result)[1].final_size) == (3, 5)
    result = run(job(1, 1, "2-8:pow2", 800), clusters=ONE, limits=limits, **stale)
    assert (result.metrics["lost_stubs"], by_id(result)[1].final_size) == (3, 4)
    # The surplus stub has ended, so that the processor was not held until the end.
    assert by_id(result)[1].area == pytest.approx(2 * 10 + 4 * (by_id(result)[1].end - 11))


def test_growth_leaves_the_threshold_idle_although_others_use_the_cluster() -> None:
    taken = (("a", (LocalJob(0, 3, 1000),)),)
    result = run(
        job(1, 1, "2-8", 800),
        clusters=ONE,
        poll_s=10,
        local_jobs=taken,
        limits=Limits(threshold=2),
    )
    assert by_id(result)[1].final_size == 3


def test_the_cap_counts_all_jobs_of_all_clusters_and_growth_under_way() -> None:
    jobs = [job(number, 0, "1-4", 1000) for number in (1, 2)]
    result = run(*jobs, poll_s=10, limits=Limits(cap=5), latencies=SLOW)
    assert result.metrics["peak_nodes"] == 5


def test_a_job_that_ends_while_its_stubs_start_gives_them_back() -> None:
    jobs = [job(1, 0, "2-8", 14), rigid(2, 14, 8, 5)]
    records = by_id(run(*jobs, clusters=ONE, poll_s=5, latencies=SLOW))
    assert (records[1].end, records[1].resizes) == (11, 0)
    assert records[2].start == 15 + 4


# ---------------------------------------------------------------- local users and outages


def test_local_users_wait_for_growth_unless_a_threshold_keeps_processors_idle() -> None:
    clusters = (*ONE, Cluster("b", 1))
    jobs = (job(1, 0, "2-8", 800), rigid(2, 10, 1, 1))
    local = (("a", (LocalJob(5, 2, 10),)),)
    greedy = run(*jobs, clusters=clusters, poll_s=10, local_jobs=local)
    assert (greedy.metrics["local_wait_s"], by_id(greedy)[1].end) == (95, 100)
    modest = run(*jobs, clusters=clusters, poll_s=10, local_jobs=local, limits=Limits(threshold=2))
    assert modest.metrics["local_wait_s"] == 0
    assert by_id(modest)[1].end > 100


def test_the_same_seed_gives_the_same_local_users_and_results() -> None:
    shared: dict[str, Any] = {"poll_s": 10, "local_users": LocalUsers(load=0.6, run_s=60)}
    jobs = [job(number, 20 * number, "2-16", 160) for number in range(1, 11)]
    first, second, other = (run(*jobs, seed=seed, **shared).metrics for seed in (3, 3, 4))
    assert first == second
    assert first != other
    # They do not depend on what the scheduler does.
    idle = run(*jobs, seed=3, limits=Limits(threshold=4), **shared).metrics
    assert idle["local_jobs"] == first["local_jobs"]


def test_a_cluster_that_vanishes_while_it_is_claimed_claims_nothing_for_ever() -> None:
    staged = GridJob(rigid(1, 0, 4, 10), files=(("mesh",),))
    gone = (Outage("a", 14, 1000),)
    result = run(staged, files=FILES, poll_s=10, lead_s=15, outages=gone)
    record = by_id(result)[1]
    assert (record.state, record.start) == (JobState.COMPLETED, 20)
    assert result.metrics["failed_claims"] == 1


def test_jobs_of_a_lost_cluster_fail_and_release_their_other_clusters() -> None:
    both = GridJob(rigid(1, 0, 8, 100), components=(4, 4))
    records = by_id(run(both, rigid(2, 1, 4, 10), outages=(Outage("a", 30, 60),)))
    assert (records[1].state, records[1].end) == (JobState.FAILED, 30)
    assert "a" in records[1].reason
    assert records[2].start == 30
    # Afterwards the cluster is used again.
    records = by_id(run(both, both_again(), outages=(Outage("a", 30, 60),)))
    assert records[2].start == 60


def both_again() -> GridJob:
    return GridJob(rigid(2, 40, 8, 10), components=(4, 4))


# ---------------------------------------------------------------- bad input


def test_jobs_that_never_fit_are_rejected_with_the_reason() -> None:
    result = run(
        GridJob(rigid(1, 0, 7, 10), components=(5, 2)),
        GridJob(rigid(2, 0, 9, 10), components=(3, 3, 3)),
        rigid(3, 0, 5, 10),
        rigid(4, 0, 4, 10),
    )
    reasons = {record.id: record.reason for record in result.jobs}
    assert reasons[1] == reasons[3] == "needs 5 processors, the largest cluster has 4"
    assert "9 processors" in reasons[2]
    assert reasons[4] == ""
    assert result.metrics["rejected"] == 3


def test_invalid_jobs_are_named() -> None:
    with pytest.raises(WorkloadError, match=r"job 1: .* a job with components has one size"):
        GridJob(job(1, 0, "2-4", 10), components=(2,))
    with pytest.raises(WorkloadError, match=r"job 1: 1 lists of files, expected 2"):
        GridJob(rigid(1, 0, 4, 10), components=(2, 2), files=(("mesh",),))
    with pytest.raises(WorkloadError, match=r"job 1 occurs twice"):
        run(rigid(1, 0, 1, 1), rigid(1, 0, 1, 1))
    with pytest.raises(WorkloadError, match=r"job 1: there is no input file 'grid'"):
        run(GridJob(rigid(1, 0, 1, 1), files=(("grid",),)), files=FILES)


@pytest.mark.parametrize("poll", [0, 10])
def test_a_simulation_that_can_never_end_stops_with_the_jobs(
    poll: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pliant.simulator.multicluster.simulate_clusters.MAX_IDLE_ROUNDS", 100)
    lonely = FileCatalogue(("a", "b"), {"mesh": 1.0}, {"mesh": ["b"]})
    staged = GridJob(rigid(1, 0, 2, 5), files=(("mesh",),))
    with pytest.raises(NoProgressError, match=r"jobs wait .*: 1"):
        run(staged, files=lonely, poll_s=poll)
