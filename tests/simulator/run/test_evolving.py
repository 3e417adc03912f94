"""Evolving jobs: what they ask for, what they do with the answer, and what is counted."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from corekit.simkit import by_id, job, rigid, run
from pliant.simulator import Settings, SimJob, simulate
from pliant.simulator.cli import main
from pliant.simulator.inputs import models
from pliant.simulator.inputs.workload import Phase
from pliant.strategies import known_strategies

ANSWERED = ("granted", "partly", "refused", "expired", "cancelled")


def evolving(number: int, submit: float, *phases: tuple[float, int, int], **more: object) -> SimJob:
    parts = tuple(Phase(*phase) for phase in phases)
    low, high = min(p.minimum for p in parts), max(p.maximum for p in parts)
    more.setdefault("malleable", False)
    more.setdefault("requested", parts[0].maximum)
    work = sum(phase.work for phase in parts)
    sizes = more.pop("sizes", f"{low}-{high}")
    return job(number, submit, str(sizes), work, phases=parts, **more)


def test_the_example_of_the_docs() -> None:
    """8 / 2 = 4 s, then 16 on 2 processors (8 s) or on 4 (4 s)."""
    first = evolving(1, 0, (8, 1, 2), (16, 2, 4))
    result = run([first, rigid(2, 1, 6, 20)], strategy="fcfs")
    assert {each.id: each.end for each in result.jobs} == {1: 12, 2: 21}
    assert result.metrics["requests"] == 1
    # 60 of work: 6 x 3 s, then 4 x 4 s beside the larger one, then 26 / 4 = 6.5 s.
    result = run([first, job(2, 1, "2-6", 60)], strategy="fcfs")
    assert {each.id: each.end for each in result.jobs} == {1: 8, 2: 14.5}


def test_a_part_is_better_than_nothing() -> None:
    """On 2 for 4 s; of 4 more there is 1: 12 of work on 3 take 4 s."""
    result = run([evolving(1, 0, (8, 1, 2), (12, 2, 6)), rigid(2, 1, 5, 50)], strategy="fcfs")
    assert by_id(result)[1].end == 8
    assert result.metrics["requests_partly"] == 1


def test_below_its_minimum_it_stands_still_until_it_gets_more() -> None:
    """On 2 until 4 s; needs 4, has them at 6 s when the other ends: 16 / 4 = 4 s."""
    result = run([evolving(1, 0, (8, 1, 2), (16, 4, 4)), rigid(2, 1, 6, 5)], strategy="fcfs")
    assert by_id(result)[1].end == 10
    assert by_id(result)[1].work == 24
    assert result.metrics["requests_granted"] == 1


def test_after_its_time_limit_a_request_is_given_up() -> None:
    """On 2 until 4 s; stands 16 / 4 = 4 s; then 16 on 2 take 8 s."""
    result = run([evolving(1, 0, (8, 1, 2), (16, 4, 4)), rigid(2, 1, 6, 50)], strategy="fcfs")
    assert by_id(result)[1].end == 16
    assert result.metrics["requests_expired"] == 1


def test_what_can_never_be_met_is_refused_and_asked_for_at_the_next_phase_only() -> None:
    first = evolving(1, 0, (8, 1, 2), (8, 16, 16), (8, 2, 4), sizes="1-4")
    result = run([first], strategy="fcfs")
    assert by_id(result)[1].end == 4 + 4 + 2
    counts = result.metrics
    assert (counts["requests"], counts["requests_refused"], counts["requests_granted"]) == (2, 1, 1)


def test_a_surplus_is_given_back_and_starts_who_waits() -> None:
    first = evolving(1, 0, (16, 4, 8), (8, 1, 2))
    result = run([first, rigid(2, 1, 6, 3)], strategy="fcfs")
    assert by_id(result)[2].start == 2
    assert by_id(result)[1].end == 6
    assert result.metrics["releases"] == 1
    assert result.metrics["requests"] == 0


def test_time_stood_still_is_no_part_of_an_exact_estimate() -> None:
    first = evolving(1, 0, (8, 1, 2), (16, 4, 4), estimate_s=12.0, requested=2)
    for other in (rigid(2, 1, 6, 50), rigid(2, 1, 6, 5)):
        result = run([first, other], strategy="fcfs")
        assert result.metrics["timeout"] == 0


def test_it_agrees_to_nothing_that_its_phase_cannot_use() -> None:
    """Malleable besides: the strategy cannot take it below 4, nor above 4."""
    first = evolving(1, 0, (40, 4, 4), malleable=True, sizes="1-8")
    result = run([first, job(2, 1, "2-8", 40)], strategy="equipartition")
    assert by_id(result)[1].end == 10


def crowd(seed: int) -> list[SimJob]:
    base = models.make_workload("ghafoor:jobs=30,gap=30,sizes=4-16", processors=32, seed=seed)
    malleable = models.make_malleable(base, 40, None, "even", Random(seed))
    return models.make_evolving(malleable, 60, Random(seed)).jobs


@pytest.mark.parametrize("name", known_strategies())
def test_every_strategy_ends_them_all_and_all_requests_are_answered(name: str) -> None:
    settings = Settings(32, name, check=True, seed=4)
    jobs = crowd(4)
    if name.startswith("profit"):
        settings = Settings(32, name, check=True, seed=4, node_size=8)
    result = simulate(jobs, settings)
    counts = result.metrics
    assert counts["completed"] == len(jobs)
    assert counts["requests"] > 5
    assert counts["requests"] == sum(counts[f"requests_{word}"] for word in ANSWERED)
    assert simulate(jobs, replace(settings, check=False)).metrics == counts


def test_the_command_counts_requests(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--workload ghafoor:jobs=40,gap=30,sizes=4-32 --processors 64 --evolving 50"
    assert main([*words.split(), "--strategy-option", "requests=last"]) == 0
    out = capsys.readouterr().out
    assert "requests_expired" in out
    assert main([*words.split(), "--json"]) == 0
    assert '"requests_granted"' in capsys.readouterr().out
