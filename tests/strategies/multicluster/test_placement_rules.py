"""Where components go: hand-made cases, the cases of another simulator, and brute force."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.values.ids import JobId
from pliant.strategies.multicluster.claiming import lacking, plan_claim
from pliant.strategies.multicluster.file_transfers import FileCatalogue
from pliant.strategies.multicluster.placement_rules import (
    MAX_SEARCHED,
    Part,
    PlacementRule,
    place_components,
)

#: Results of a simulator that was written independently from the paper.
CASES = [
    json.loads(line)
    for line in Path(__file__).with_name("placement-cases.jsonl").read_text().splitlines()
]


def clusters(parts: list[Part] | None) -> list[str] | None:
    return None if parts is None else [part.cluster for part in parts]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["case"]))
def test_placements_and_claims_are_those_of_an_independent_simulator(case: dict[str, Any]) -> None:
    idle, sizes, expected = case["free"], case["components"], case["expect"]
    bandwidth = {(source, target): speed for source, target, speed in case["bandwidth"]}
    files = FileCatalogue(idle, case["file_size"], case["replicas"], bandwidth)
    transfers = files.transfers(case["files"])
    for rule in ("wf", "cf", "cm"):
        assert clusters(place_components(rule, sizes, idle, transfers)) == expected[rule]
    split = place_components("fcm", sizes, idle)
    assert (None if split is None else [list(part) for part in split]) == expected["fcm"]
    parts = place_components("wf", sizes, idle)
    claimed: object = None
    if parts is not None:
        then = dict(idle)
        for time, cluster, change in case["others"]:
            if time <= case["claim_at"]:
                then[cluster] = max(0, then[cluster] + change)
        claimed = lacking(plan_claim(JobId(1), parts, 0.0), then) or True
    assert claimed == expected["wf_claim"]


def test_worst_fit_takes_the_most_idle_cluster_for_each_component_in_turn() -> None:
    idle = {"a": 6, "b": 9, "c": 6}
    assert clusters(place_components("wf", [4, 4, 4], idle)) == ["b", "a", "c"]
    # The largest one goes first, although it is the last of the list.
    assert clusters(place_components("wf", [2, 9], idle)) == ["a", "b"]


def test_close_to_files_prefers_clusters_that_have_the_files() -> None:
    idle = {"a": 9, "b": 5, "c": 5}
    times = [{"a": 8.0, "b": 0.0, "c": 0.0}, {"a": 0.0, "b": 1.0, "c": 1.0}]
    assert clusters(place_components("cf", [4, 6], idle, times)) == ["b", "a"]
    # No room next to the files: the shortest transfer counts.
    assert clusters(place_components("cf", [6], idle, times)) == ["a"]
    # Without files, it is worst fit.
    assert place_components("cf", [4, 4], idle) == place_components("wf", [4, 4], idle)


def test_cluster_minimization_finds_what_filling_clusters_in_turn_misses() -> None:
    # Filling the idlest cluster takes 5 + 2, and leaves 4 + 3 for 6 processors.
    idle = {"a": 8, "b": 6}
    assert clusters(place_components("cm", [5, 4, 3, 2], idle)) == ["a", "b", "a", "b"]
    assert place_components("cm", [7, 7], idle) is None


def test_with_many_clusters_one_is_filled_after_the_other() -> None:
    idle = {f"c{number}": 4 for number in range(MAX_SEARCHED + 1)}
    parts = place_components("cm", [3, 2, 2, 1], idle)
    assert clusters(parts) == ["c0", "c1", "c1", "c0"]


def test_a_flexible_job_is_split_by_idle_processors() -> None:
    idle = {"a": 3, "b": 7, "c": 0}
    assert place_components("fcm", [2, 2, 4], idle) == [Part("b", 7), Part("a", 1)]
    assert place_components("fcm", [11], idle) is None


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[int], dict[str, int]]:
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    idle = draw(st.lists(st.integers(0, 14), min_size=1, max_size=4))
    return sizes, {f"c{number}": processors for number, processors in enumerate(idle)}


def feasible(sizes: list[int], idle: dict[str, int]) -> list[tuple[str, ...]]:
    """All ways to give each component a cluster."""
    found = []
    for homes in itertools.product(idle, repeat=len(sizes)):
        used = dict.fromkeys(idle, 0)
        for home, size in zip(homes, sizes, strict=True):
            used[home] += size
        if all(used[name] <= idle[name] for name in idle):
            found.append(homes)
    return found


@given(situations(), st.sampled_from(["wf", "cf", "cm", "fcm"]))
def test_all_components_or_none_and_never_more_than_is_idle(
    situation: tuple[list[int], dict[str, int]], rule: PlacementRule
) -> None:
    sizes, idle = situation
    parts = place_components(rule, sizes, idle)
    if parts is None:
        # Worst fit may miss a placement that exists, the two minimizations do not.
        if rule == "cm":
            assert feasible(sizes, idle) == []
        if rule == "fcm":
            assert sum(idle.values()) < sum(sizes)
        return
    used = dict.fromkeys(idle, 0)
    for cluster, processors in parts:
        assert processors > 0
        used[cluster] += processors
    assert all(used[name] <= idle[name] for name in idle)
    if rule == "fcm":
        assert sum(used.values()) == sum(sizes)
    else:
        assert [part.processors for part in parts] == sizes


@given(situations())
def test_the_minimizations_use_as_few_clusters_as_possible(
    situation: tuple[list[int], dict[str, int]],
) -> None:
    sizes, idle = situation
    ways = feasible(sizes, idle)
    if ways:
        parts = place_components("cm", sizes, idle)
        assert parts is not None
        assert len({part.cluster for part in parts}) == min(len(set(way)) for way in ways)
    split = place_components("fcm", sizes, idle)
    if split is not None:
        fewest = next(
            number
            for number in range(1, len(idle) + 1)
            if sum(sorted(idle.values())[-number:]) >= sum(sizes)
        )
        assert len(split) == fewest
