"""The engine against scenarios that were computed by hand, one for each way of a command."""

from __future__ import annotations

import pytest

from corekit.simkit import Scripted, by_id, job, rigid, run
from pliant.core.model.lifecycle import JobState
from pliant.core.model.views_and_plans import Offer, Plan, Start, View
from pliant.core.values.processors import from_indices, lowest
from pliant.simulator import Cluster, Settings, simulate
from pliant.simulator.inputs.costs import Cost
from pliant.simulator.inputs.failures import Failures
from pliant.simulator.inputs.workload import WorkloadError
from testkit import ROOT

#: On 8 processors: the first computes 80 s of one processor's work, the second takes half of them
#: from it for 4 s.
PAIR = [job(1, 0, "2-8", 80), rigid(2, 2, 4, 4)]


def test_rigid_jobs_wait_for_their_turn() -> None:
    jobs = [rigid(1, 0, 3, 10), rigid(2, 1, 2, 5), rigid(3, 2, 1, 1)]
    result = run(jobs, 4, strategy="fcfs")
    times = [(r.id, r.start, r.end, r.processors) for r in result.jobs]
    assert times == [(1, 0, 10, 3), (3, 10, 11, 1), (2, 10, 15, 2)]
    assert result.metrics["mean_wait_s"] == (0 + 9 + 8) / 3


def test_an_end_and_an_arrival_of_one_instant_are_one_pass() -> None:
    jobs = [rigid(1, 0, 4, 10), rigid(2, 10, 4, 1)]
    result = run(jobs, 4, strategy="fcfs")
    assert by_id(result)[2].start == 10
    assert result.metrics["plans"] <= 5


def test_a_malleable_job_gives_and_gets_back() -> None:
    result = run(PAIR)
    # 16 done by 2, 16 more on 4 by 6, the other 48 on 8 take 6 s.
    assert [(r.id, r.start, r.end, r.resizes) for r in result.jobs] == [(2, 2, 6, 0), (1, 0, 12, 2)]
    assert result.metrics["adaptations"] == result.metrics["negotiations"] == 2
    assert result.metrics["utilization"] == result.metrics["utilization_work"] == 1.0


def test_an_adaptation_stops_the_job_on_its_new_allocation() -> None:
    result = run(PAIR, adaptation_cost=Cost(0.5, 0.5))
    # Still from 2 to 4, 8 done on 4 by 6, still to 8, 56 left on 8.
    assert {r.id: r.end for r in result.jobs} == {2: 6, 1: 15}
    assert result.metrics["utilization"] == 1.0
    assert result.metrics["utilization_work"] == pytest.approx(96 / (8 * 15))


def test_a_job_of_its_own_cost_and_an_estimate_that_knows_no_pause() -> None:
    first = job(1, 0, "2-8", 80, adaptation_cost=0.5, estimate_s=10)
    result = run([first, PAIR[1]])
    assert by_id(result)[1].state is JobState.COMPLETED
    assert by_id(result)[1].end == 15


def test_negotiations_take_time_before_resizes_begin() -> None:
    result = run(PAIR, negotiation_cost=Cost(1, 1))
    # Agreed at 3 with 56 left; at 8 with 36 left.
    assert {r.id: r.end for r in result.jobs} == {2: 7, 1: 12.5}
    assert by_id(result)[2].start == 3


def test_negotiations_run_in_a_row_or_at_once() -> None:
    jobs = [job(1, 0, "1-4", 100), job(2, 0, "1-4", 100), rigid(3, 5, 4, 1)]
    for negotiation, start in (("sequential", 5 + 4), ("parallel", 5 + 2)):
        result = run(jobs, negotiation_cost=Cost(2, 2), negotiation=negotiation)
        assert by_id(result)[3].start == start, negotiation


def test_events_during_negotiations_are_applied_and_then_planned_for() -> None:
    jobs = [*PAIR, rigid(3, 2.5, 2, 1)]
    result = run(jobs, negotiation_cost=Cost(1, 1))
    # It came during the talks that ended at 3, so the next talks are at 3 and end at 4.
    assert by_id(result)[3].start == 4


def test_a_job_may_end_during_a_negotiation() -> None:
    jobs = [job(1, 0, "2-8", 80), rigid(2, 9.5, 4, 4)]
    result = run(jobs, negotiation_cost=Cost(1, 1))
    assert by_id(result)[1].end == 10
    assert by_id(result)[2].start == 10.5
    assert result.metrics["refused_parts"] == 1
    assert result.metrics["negotiations"] == 1  # its talk has taken time, too


def test_own_delay_of_a_job() -> None:
    first = job(1, 0, "2-8", 80, negotiation_delay=3.0)
    assert by_id(run([first, PAIR[1]]))[2].start == 5


def test_resizes_wait_for_safe_points() -> None:
    result = run(PAIR, safe_point_interval=5)
    # GO at 2, safe point at 5 with 40 left; 2 runs from 5 to 9; GO at 9, safe point at 10 with 20.
    assert by_id(result)[2].start == 5
    assert by_id(result)[1].end == 10 + 20 / 8


def test_a_job_ends_before_its_safe_point() -> None:
    result = run([job(1, 0, "2-8", 80), rigid(2, 2, 4, 4)], safe_point_interval=60)
    assert {r.id: (r.start, r.end) for r in result.jobs} == {1: (0, 10), 2: (10, 14)}
    assert result.metrics["adaptations"] == 0


def test_a_refusal_is_not_repeated_until_something_happens() -> None:
    result = run([*PAIR, rigid(3, 5, 1, 1)], answers="reluctant")
    assert by_id(result)[1].end == 10
    assert by_id(result)[2].start == 10
    assert result.metrics["refusals"] == result.metrics["negotiations"] == 2


def test_after_a_quiet_time_a_job_is_asked_again() -> None:
    result = run(PAIR, answers="reluctant", quiet_s=3.0)
    assert result.metrics["refusals"] == 3  # at 2, 5 and 8


def test_a_counter_offer_that_gives_more_leaves_the_rest_free() -> None:
    jobs = [job(1, 0, "2-8", 80, answer="pow2"), rigid(2, 2, 3, 4)]
    result = run(jobs)
    assert by_id(result)[2].start == 2
    assert [len(span.processors) for span in result.spans if span.job == 1] == [8, 4, 8]
    assert result.metrics["counters"] >= 1


def test_counter_offers_that_give_too_little_are_answered_by_a_last_word() -> None:
    result = run([job(1, 0, "2-8", 80, answer="countering"), rigid(2, 2, 6, 4)])
    assert by_id(result)[2].start == 2
    assert [len(span.processors) for span in result.spans if span.job == 1][:2] == [8, 2]
    assert result.metrics["counters"] >= 2  # 5 twice; then it takes the last word


def test_the_first_rank_may_leave() -> None:
    def plan(view: View) -> Plan:
        shrinks = tuple(
            Offer(j.id, from_indices(j.ranks[4:]))
            for j in view.running
            if j.resizable and view.waiting
        )
        free = view.free
        given = from_indices(range(4)) if shrinks else 0
        starts = []
        for waiting in view.waiting:
            if (free | given).bit_count() >= waiting.sizes.max:
                taken = lowest(free | given, waiting.sizes.max)
                starts.append(Start(waiting.id, taken))
                free, given = free & ~taken, given & ~taken
        return Plan(shrinks=shrinks, starts=tuple(starts))

    result = run(PAIR, strategy=Scripted(plan))
    assert [span.processors for span in result.spans if span.job == 2] == [(0, 1, 2, 3)]
    assert by_id(result)[1].end == 2 + 64 / 4


def test_no_pass_is_made_for_a_wake_up_that_is_wanted_no_more() -> None:
    passes: list[float] = []

    def plan(view: View) -> Plan:
        passes.append(view.now)
        starts = tuple(Start(each.id, lowest(view.free, each.sizes.min)) for each in view.waiting)
        return Plan(starts=starts, wake_at=100.0 if view.now < 10 else None)

    run([rigid(1, 0, 1, 200)], strategy=Scripted(plan))
    assert 100.0 in passes
    passes.clear()
    run([rigid(1, 0, 1, 50), rigid(2, 10, 1, 200)], strategy=Scripted(plan))
    assert 100.0 not in passes


def test_the_requested_time_ends_a_job_of_one_size_only() -> None:
    result = run([rigid(1, 0, 4, 10, estimate_s=7)], strategy="fcfs")
    assert (by_id(result)[1].state, by_id(result)[1].end) == (JobState.TIMEOUT, 7)
    assert by_id(result)[1].work == 28
    malleable = job(1, 0, "2-8", 80, estimate_s=5)
    late = by_id(run([malleable, PAIR[1]]))[1]
    assert late.state is JobState.COMPLETED


def test_a_strategy_that_promises_starts_ends_moldable_jobs_at_their_estimates() -> None:
    moldable = job(1, 0, "2-8", 80, malleable=False, estimate_s=5)
    late = by_id(run([moldable], strategy="fcfs+conservative"))[1]
    assert (late.state, late.end) == (JobState.TIMEOUT, 5)
    assert by_id(run([moldable], strategy="fcfs+easy"))[1].state is JobState.COMPLETED


def test_exact_estimates_end_nobody() -> None:
    jobs = [rigid(n, n * 0.1, n % 4 + 1, 0.1 * n, estimate_s=0.1 * n) for n in range(1, 50)]
    assert run(jobs, strategy="fcfs+easy").metrics["completed"] == 49


def test_moldable_jobs_are_never_offered_anything() -> None:
    result = run([job(1, 0, "2-8", 80, malleable=False), PAIR[1]])
    assert by_id(result)[1].end == 10
    assert by_id(result)[1].job_class == "moldable"
    assert result.metrics["negotiations"] == 0


def test_several_clusters_and_nodes() -> None:
    seen: list[tuple[str, str]] = []

    def plan(view: View) -> Plan:
        seen.extend((node.cluster, str(node.name)) for node in view.nodes)
        return Plan(starts=tuple(Start(w.id, lowest(view.free, 3)) for w in view.waiting))

    clusters = (Cluster("a", 4), Cluster("b", 2))
    settings = Settings(strategy=Scripted(plan), clusters=clusters, node_size=2, check=True)
    result = simulate([job(1, 0, "3", 3)], settings)
    assert seen[:3] == [("a", "a0"), ("a", "a1"), ("b", "b")]
    assert by_id(result)[1].end == 1


def test_a_job_wider_than_every_cluster_is_refused_by_strategies_that_keep_it_within_one() -> None:
    clusters = (Cluster("a", 8), Cluster("b", 6))
    jobs = [rigid(1, 0, 2, 5), rigid(2, 1, 10, 5)]
    with pytest.raises(WorkloadError, match="job 2 needs 10 processors, the largest cluster has 8"):
        simulate(jobs, Settings(strategy="egs+pwa", clusters=clusters))
    assert by_id(simulate(jobs, Settings(strategy="fcfs", clusters=clusters)))[2].start == 1
    assert simulate(jobs, Settings(14, strategy="egs+pwa")).metrics["completed"] == 2


def test_a_lost_node_ends_its_jobs_and_comes_back() -> None:
    failures = Failures(listed={"default1": [(3.0, 7.0)]})
    jobs = [rigid(1, 0, 4, 10), rigid(2, 1, 4, 2)]
    result = run(jobs, 4, strategy="fcfs", node_size=2, failures=failures)
    first, second = by_id(result)[1], by_id(result)[2]
    assert (first.state, first.end, first.area) == (JobState.NODE_FAIL, 3, 12)
    assert (second.state, second.start) == (JobState.COMPLETED, 7)
    assert result.metrics["failed"] == 1


def test_of_one_instant_ends_come_first_then_arrivals_then_the_rest() -> None:
    failures = Failures(listed={"default1": [(5.0, 9.0)]})
    # 1 ends at 5 on both nodes, when 2 comes and the second node is lost.
    jobs = [rigid(1, 0, 4, 5), rigid(2, 5, 2, 1)]
    seen = []
    settings = Settings(4, strategy="fcfs", node_size=2, failures=failures)
    result = simulate(jobs, settings, on_note=lambda note: seen.append((note.time, note.kind)))
    kinds = [kind for time, kind in seen if time == 5]
    order = ["job.ended", "job.submitted", "node.state", "job.started"]
    assert [kind for kind in kinds if kind in order] == order
    assert by_id(result)[1].state is JobState.COMPLETED


def test_a_node_is_lost_on_the_way_to_a_safe_point() -> None:
    failures = Failures(listed={"default1": [(7.0, 50.0)]})
    # 1 is to grow onto the second node, which is lost before its safe point at 10.
    jobs = [rigid(1, 0, 4, 6), job(2, 0, "4-8", 80)]
    result = run(jobs, strategy="equipartition", node_size=4, failures=failures)
    assert sorted(r.id for r in result.jobs) == [1, 2]
    late = run(jobs, node_size=4, failures=failures, safe_point_interval=10)
    assert sorted(r.id for r in late.jobs) == [1, 2]


def test_donors_that_give_half_do_not_grow_and_shrink_for_ever() -> None:
    # At a safe point each 3 s: whoever has given half finds that the others have not given yet.
    sizes = ("1-4", "3-6", "2-7")
    jobs = [job(n, n, each, 1500) for n, each in enumerate(sizes, 1)] + [rigid(4, 10, 6, 100)]
    used = {"answers": "countering", "safe_point_interval": 3.0, "check": False}
    assert run(jobs, 12, quiet_s=30.0, **used).metrics["negotiations"] < 40


def test_random_failures_end_with_the_last_job() -> None:
    jobs = [rigid(n, n, 2, 30) for n in range(1, 20)]
    result = run(jobs, node_size=2, failures=Failures(100, 20), seed=3)
    assert len(result.jobs) == 19
    assert result.metrics["failed"] > 0


def test_nothing_to_do() -> None:
    result = run([])
    assert result.metrics["jobs"] == result.metrics["utilization"] == 0
    assert run([rigid(1, 5, 1, 0)]).metrics["completed"] == 1


def test_the_history_is_the_daemons() -> None:
    kinds = []
    simulate(PAIR, Settings(8), on_note=lambda note: kinds.append((note.time, note.kind, note.job)))
    assert (2, "offer.sent", 1) in kinds
    assert (2, "job.resized", 1) in kinds
    assert kinds[-1] == (12, "job.ended", 1)


def test_the_example_of_the_documents(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "simulator.md").read_text()
    start = text.index("```python\n") + len("```python\n")
    exec(text[start : text.index("```", start)], {})
    assert capsys.readouterr().out == "8.0 [(2, 6.0), (1, 12.0)]\n"
