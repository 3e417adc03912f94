"""The decisions of a federation, as a state machine: what is observed, and what is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from pliant.client.federation.planner import Planner
from pliant.client.federation.planner_inputs_and_actions import (
    Action,
    CancelStub,
    Claim,
    DrainNode,
    GridJob,
    GridNode,
    Observation,
    RemoveNode,
    ResumeNode,
    SiteLoad,
    Stub,
    SubmitStubs,
    parse_stub_name,
    stub_name,
)
from pliant.client.federation.settings import FederationSettings, SiteSettings
from pliant.core.model.nodes import JOINED_DRAINED
from pliant.core.values.sizes import parse_sizes

Kind = TypeVar("Kind", bound=Action)

NOW = 1000.0
REGISTERED = GridNode("DRAINED", reason=JOINED_DRAINED)
IDLE = GridNode("UP")
BUSY = GridNode("UP", used=1)
CLAIM = Claim(job=7, serial=900, stubs=2)


def make_planner(threshold: int = 0, max_stubs: int = 10, **changes: Any) -> Planner:
    sites = {
        name: SiteSettings(run_dir=f"/{name}", max_stubs=max_stubs, threshold=threshold)
        for name in ("delft", "leiden")
    }
    return Planner(
        FederationSettings(sites=sites, start_timeout_s=60, idle_s=30, retry_s=300, **changes)
    )


def job(sizes: str, components: Sequence[int] = (), **fields: Any) -> GridJob:
    parsed = parse_sizes(sizes)
    return GridJob(7, parsed, tuple(components) or (parsed.min,), **fields)


def seen(delft: int = 0, leiden: int = 0, **fields: Any) -> Observation:
    sites = {"delft": SiteLoad(delft), "leiden": SiteLoad(leiden)}
    return Observation(fields.pop("now", NOW), **{"sites": sites, **fields})


def stubs(*nodes: str, claim: Claim = CLAIM, submitted: float = NOW - 10) -> list[Stub]:
    return [
        Stub(node.rpartition("-")[0], number, node, claim, submitted)
        for number, node in enumerate(nodes, 1)
    ]


def of_kind(actions: Sequence[Action], kind: type[Kind]) -> list[Kind]:
    return [action for action in actions if isinstance(action, kind)]


def submitted(actions: Sequence[Action]) -> dict[str, int]:
    return {action.site: len(action.nodes) for action in of_kind(actions, SubmitStubs)}


WAITING = job("2-6", waits=True)
RUNNING = job("2-6", processors=2, nodes=frozenset({"delft-1", "delft-2"}), may_grow=True)
HELD = {"delft-1": BUSY, "delft-2": BUSY}


# ---------------------------------------------------------------- placement


def test_a_waiting_job_gets_its_smallest_size_at_the_site_with_most_idle_processors() -> None:
    (action,) = make_planner().plan(seen(delft=3, leiden=5, jobs=[WAITING]))
    assert isinstance(action, SubmitStubs)
    assert (action.site, action.nodes) == ("leiden", ("leiden-1", "leiden-2"))
    assert (action.claim.job, action.claim.stubs) == (7, 2)


@pytest.mark.parametrize(
    "observed",
    [
        seen(delft=1, leiden=1, jobs=[WAITING]),  # nothing is claimed in parts
        seen(delft=-1, leiden=0, jobs=[WAITING]),  # more stubs wait than processors are idle
        Observation(NOW, [WAITING]),  # no site answers
        seen(delft=9, jobs=[replace(WAITING, waits=False)]),
    ],
)
def test_nothing_is_claimed(observed: Observation) -> None:
    planner = make_planner()
    assert planner.plan(observed) == []
    assert not planner.has_open_claims


def test_all_components_find_processors_or_none_does() -> None:
    pair = job("5", components=[2, 3], waits=True)
    assert submitted(make_planner().plan(seen(delft=3, leiden=2, jobs=[pair]))) == {
        "delft": 3,
        "leiden": 2,
    }
    assert make_planner().plan(seen(delft=3, leiden=1, jobs=[pair])) == []


def test_the_threshold_limits_growth_and_not_placement() -> None:
    assert submitted(make_planner(threshold=2).plan(seen(delft=2, jobs=[WAITING]))) == {"delft": 2}
    grown = make_planner(threshold=2).plan(seen(delft=3, jobs=[RUNNING], nodes=HELD))
    assert submitted(grown) == {"delft": 1}


def test_two_jobs_of_one_poll_do_not_get_the_same_processors() -> None:
    second = replace(WAITING, id=8)
    assert len(make_planner().plan(seen(delft=3, jobs=[WAITING, second]))) == 1
    assert len(make_planner().plan(seen(delft=4, jobs=[WAITING, second]))) == 2


def test_no_site_has_more_stubs_than_its_limit() -> None:
    planner = make_planner(max_stubs=3)
    other = stubs("delft-1", "delft-2", claim=Claim(6, 1, 2))
    assert planner.plan(seen(delft=9, jobs=[WAITING], stubs=other, nodes=HELD)) == []


def test_idle_stubs_are_used_before_others_are_claimed() -> None:
    nodes = {"leiden-1": IDLE}
    found = make_planner().plan(seen(delft=1, leiden=1, jobs=[WAITING], nodes=nodes))
    assert submitted(found) == {"leiden": 1}
    assert of_kind(found, SubmitStubs)[0].nodes == ("leiden-2",)


# ---------------------------------------------------------------- growth


def test_a_job_grows_at_its_own_site_first_and_then_into_another() -> None:
    found = make_planner().plan(seen(delft=1, leiden=9, jobs=[RUNNING], nodes=HELD))
    assert submitted(found) == {"delft": 1, "leiden": 3}
    assert len({action.claim for action in of_kind(found, SubmitStubs)}) == 1


def test_growth_may_be_limited_to_the_sites_of_the_job() -> None:
    planner = make_planner(growth="same-site")
    found = planner.plan(seen(delft=1, leiden=9, jobs=[RUNNING], nodes=HELD))
    assert submitted(found) == {"delft": 1}


def test_growth_claims_only_what_makes_an_allowed_size() -> None:
    doubling = replace(RUNNING, sizes=parse_sizes("2-16:pow2"))
    planner = make_planner()
    assert submitted(planner.plan(seen(delft=5, jobs=[doubling], nodes=HELD))) == {"delft": 2}
    assert make_planner().plan(seen(delft=1, jobs=[doubling], nodes=HELD)) == []


def test_nothing_grows_at_a_site_whose_own_users_wait_or_while_a_grid_job_waits() -> None:
    queue = {"delft": SiteLoad(4, has_queue=True)}
    assert make_planner().plan(seen(jobs=[RUNNING], nodes=HELD, sites=queue)) == []
    wide = replace(job("40", waits=True), id=8)
    assert make_planner().plan(seen(delft=4, jobs=[RUNNING, wide], nodes=HELD)) == []


# ---------------------------------------------------------------- claims


def test_stubs_are_put_into_use_when_all_have_registered() -> None:
    planner = make_planner()
    mine = stubs("delft-1", "delft-2")
    one = {"delft-1": REGISTERED}
    assert planner.plan(seen(jobs=[WAITING], stubs=mine, nodes=one)) == []
    assert planner.has_open_claims
    both = {**one, "delft-2": REGISTERED}
    found = planner.plan(seen(jobs=[WAITING], stubs=mine, nodes=both))
    assert found == [ResumeNode("delft-1"), ResumeNode("delft-2")]


def test_a_claim_that_is_put_into_use_in_part_is_completed_after_a_restart() -> None:
    nodes = {"delft-1": BUSY, "delft-2": REGISTERED}
    found = make_planner().plan(
        seen(jobs=[RUNNING], stubs=stubs("delft-1", "delft-2"), nodes=nodes, now=NOW + 9999)
    )
    assert found == [ResumeNode("delft-2")]


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        # A stub that never starts.
        (seen(jobs=[WAITING], stubs=stubs("delft-1", "delft-2", submitted=NOW - 61)), "within"),
        # A stub that the operator of the site cancelled, or that was never submitted.
        (seen(jobs=[WAITING], stubs=stubs("delft-1")), "only 1 of 2"),
        # The job was cancelled meanwhile.
        (seen(stubs=stubs("delft-1", "delft-2")), "has ended"),
        # The site does not answer any more.
        (
            Observation(NOW, [WAITING], stubs=stubs("delft-1", "delft-2", submitted=NOW - 61)),
            "within",
        ),
    ],
)
def test_a_claim_that_cannot_be_completed_is_given_back(observed: Observation, reason: str) -> None:
    nodes = {"delft-1": REGISTERED}
    found = make_planner().plan(replace(observed, nodes=nodes))
    cancelled = of_kind(found, CancelStub)
    assert [action.stub for action in cancelled] == list(observed.stubs)
    assert all(reason in action.reason for action in cancelled)
    assert not of_kind(found, ResumeNode)


def test_a_job_with_an_open_claim_gets_no_second_one() -> None:
    mine = stubs("delft-1", "delft-2")
    assert make_planner().plan(seen(delft=9, leiden=9, jobs=[WAITING], stubs=mine)) == []


# ---------------------------------------------------------------- release


def test_idle_stubs_are_drained_and_then_cancelled() -> None:
    planner = make_planner()
    (mine,) = stubs("delft-1", claim=Claim(7, 900, 1))
    observed = seen(stubs=[mine], nodes={"delft-1": IDLE})
    assert planner.plan(observed) == []
    (action,) = planner.plan(replace(observed, now=NOW + 30))
    assert isinstance(action, DrainNode)
    drained = {"delft-1": GridNode("DRAINED", reason=action.reason)}
    (end,) = planner.plan(replace(observed, now=NOW + 31, nodes=drained))
    assert isinstance(end, CancelStub)
    ended = {"delft-1": GridNode("LOST", is_connected=False)}
    assert planner.plan(seen(nodes=ended)) == [RemoveNode("delft-1")]


def test_a_stub_with_processes_of_a_job_is_not_cancelled() -> None:
    nodes = {"delft-1": GridNode("DRAINING", used=1), "delft-2": GridNode("DRAINED", used=1)}
    found = make_planner().plan(
        seen(jobs=[RUNNING], stubs=stubs("delft-1", "delft-2"), nodes=nodes)
    )
    assert found == []


def test_a_job_that_did_not_use_its_stubs_gets_no_others_for_a_time() -> None:
    planner = make_planner()
    mine = stubs("leiden-1", claim=Claim(7, 900, 1))
    nodes = {**HELD, "leiden-1": IDLE}
    observed = seen(delft=9, jobs=[replace(RUNNING, sizes=parse_sizes("2-3"))], nodes=nodes)
    observed = replace(observed, stubs=mine)
    assert planner.plan(observed) == []
    assert of_kind(planner.plan(replace(observed, now=NOW + 30)), DrainNode)
    later = replace(observed, nodes=HELD, stubs=())
    assert planner.plan(replace(later, now=NOW + 100)) == []
    assert submitted(planner.plan(replace(later, now=NOW + 330))) == {"delft": 1}


def test_idle_stubs_are_kept_while_others_are_claimed() -> None:
    planner = make_planner()
    mine = [*stubs("delft-1", claim=Claim(6, 1, 1)), *stubs("delft-2", "delft-3")]
    observed = seen(jobs=[WAITING], stubs=mine, nodes={"delft-1": IDLE})
    for second in (0, 20, 40):
        assert planner.plan(replace(observed, now=NOW + second)) == []


# ---------------------------------------------------------------- failures in use


def test_jobs_leave_a_stub_before_its_time_limit() -> None:
    mine = [replace(each, ends=NOW + 100) for each in stubs("delft-1", claim=Claim(7, 1, 1))]
    (action,) = make_planner().plan(seen(jobs=[RUNNING], stubs=mine, nodes={"delft-1": BUSY}))
    assert isinstance(action, DrainNode)


def test_a_stub_whose_node_is_lost_is_cancelled() -> None:
    mine = stubs("delft-1", claim=Claim(7, 1, 1))
    nodes = {"delft-1": GridNode("LOST", used=1, is_connected=False)}
    (action,) = make_planner().plan(seen(stubs=mine, nodes=nodes))
    assert isinstance(action, CancelStub)


def test_nodes_of_a_site_that_does_not_answer_are_kept() -> None:
    gone = {"delft-1": GridNode("LOST", is_connected=False)}
    assert make_planner().plan(Observation(NOW, nodes=gone)) == []


# ---------------------------------------------------------------- names


def test_a_stub_is_recognised_by_its_name() -> None:
    assert parse_stub_name("grid", stub_name("grid", "delft-3", CLAIM)) == ("delft-3", CLAIM)


@pytest.mark.parametrize(
    "name", ["", "stub", "stub:grid", "stub:other:delft-1:7:900:2", "stub:grid:delft-1:7:x:2"]
)
def test_other_jobs_are_no_stubs(name: str) -> None:
    assert parse_stub_name("grid", name) is None
