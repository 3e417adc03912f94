"""The small pure parts of the server."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.commands import RunStrategy
from pliant.core.events import PlanFailed, PlanReady
from pliant.core.model.nodes import Node
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.model.views_and_plans import Plan, View
from pliant.core.values.ids import CycleId, JobId, NodeName, ResizeId
from pliant.core.values.processors import from_indices
from pliant.server.authentication.app_tokens import AppTokens
from pliant.server.execution.planner import FALLBACK, FAULTS_ALLOWED, Planner
from pliant.server.execution.start_orders import node_list, process_mapping
from pliant.server.execution.timers import MAX_STALE_ENTRIES, Timers
from pliant.server.registry.job_program import Program, expand, job_marks
from pliant.server.registry.mpi_worlds import World, WorldRegistry
from pliant.server.registry.processor_nodes import NodeMap
from pliant.server.rpc.leases import Health, HeartbeatLeases
from pliant.server.rpc.pmi_barriers import BarrierTable
from pliant.server.support.log_setup import escape_control
from pliant.server.support.stall_detection import CATCH_UP_S, wait_measuring_stall
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests.submission_schema import check_submission
from pliant.strategies.equipartition import Equipartition

A, B = NodeName("a"), NodeName("b")
BOTH = frozenset({A, B})


# ------------------------------------------------------------------ barriers


def test_a_barrier_opens_when_all_nodes_are_there() -> None:
    barriers = BarrierTable()
    assert barriers.arrive("w", BOTH, A, 1, {"x": "1"}) is None
    assert barriers.arrive("w", BOTH, A, 1, {"x": "1"}) is None  # sent again
    merged = barriers.arrive("w", BOTH, B, 1, {"y": "2"})
    assert merged is not None
    assert (merged.pairs, merged.tell, merged.again) == ({"x": "1", "y": "2"}, BOTH, False)


def test_who_asks_again_is_answered_alone() -> None:
    barriers = BarrierTable({("w", 1): {"x": "1"}})
    merged = barriers.arrive("w", BOTH, B, 1, {})
    assert merged is not None
    assert (merged.tell, merged.again) == (frozenset({B}), True)


def test_a_barrier_that_all_have_left_behind_is_forgotten() -> None:
    barriers = BarrierTable({("w", 1): {"x": "1"}})
    for node in (A, B):
        barriers.arrive("w", BOTH, node, 2, {})
    assert barriers.arrive("w", BOTH, A, 2, {}) is not None
    assert barriers.arrive("w", BOTH, A, 1, {}) is None


def test_barriers_and_worlds_are_kept_apart() -> None:
    barriers = BarrierTable()
    barriers.arrive("w", BOTH, A, 1, {})
    assert barriers.arrive("w", BOTH, B, 2, {}) is None
    assert barriers.arrive("v", BOTH, B, 1, {}) is None
    barriers.forget(["w"])
    assert barriers.arrive("w", BOTH, B, 1, {}) is None
    assert barriers.arrive("v", BOTH, A, 1, {}) is not None


# ------------------------------------------------------------------ starts


@pytest.mark.parametrize(
    ("nodes", "mapping"),
    [
        ("a", "(vector,(0,1,1))"),
        ("aabb", "(vector,(0,2,2))"),
        ("aaab", "(vector,(0,1,3),(1,1,1))"),
        ("abab", "(vector,(0,2,1),(0,2,1))"),
        ("babb", "(vector,(0,2,1),(0,1,2))"),
        ("aabbcd", "(vector,(0,2,2),(2,2,1))"),
    ],
)
def test_process_mapping(nodes: str, mapping: str) -> None:
    assert process_mapping(nodes) == mapping


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=30))
def test_process_mapping_says_where_each_rank_is(nodes: list[str]) -> None:
    numbers: dict[str, int] = {}
    expected = [numbers.setdefault(node, len(numbers)) for node in nodes]
    inner = process_mapping(nodes).removeprefix("(vector,(").removesuffix("))")
    found: list[int] = []
    for block in inner.split("),("):
        first, count, ranks = map(int, block.split(","))
        found += [node for node in range(first, first + count) for _ in range(ranks)]
    assert found == expected


def test_processors_have_their_nodes() -> None:
    nodes = NodeMap([Node(B, 4, 2, address="hb"), Node(A, 0, 3, address="ha")])
    assert [nodes.host(p).name for p in (0, 2, 4, 5)] == [A, A, B, B]
    for nobody in (3, 6, -1):
        with pytest.raises(KeyError):
            nodes.host(nobody)
    assert nodes.split(from_indices([1, 5])) == [(A, from_indices([1])), (B, from_indices([5]))]
    assert node_list([nodes.host(p) for p in (4, 0, 1)]) == b"hb:1\nha:2\n"


def test_the_book_knows_the_last_world_on_a_processor() -> None:
    worlds = WorldRegistry("c")
    job = JobId(1)
    for resize, processors in ((0, (0, 1, 2)), (4, (2, 5))):
        name = worlds.name(job, 1, ResizeId(resize))
        worlds.add(World(name, job, 1, ResizeId(resize), 1, processors, frozenset({A})))
    assert worlds.name(job, 1, ResizeId(4)) == "c.j1.r1.w4"
    world, rank = worlds.latest(job, 1, 2) or (None, None)
    assert world is not None
    assert (world.resize, rank) == (4, 0)
    assert worlds.latest(job, 1, 9) is None
    first = worlds.get("c.j1.r1.w0")
    assert first is not None
    worlds.drop(first)
    assert worlds.get(first.name) is None
    assert worlds.nodes(job, 1) == {A}
    assert [world.resize for world in worlds.forget(job)] == [4]
    worlds.drop(first)
    assert worlds.nodes(job, 1) == set()


@given(st.text(), st.text())
def test_output_paths(pattern: str, name: str) -> None:
    assert expand("%j-%x-%%j-%q%", job_marks(7, "a/b", "")) == "7-a_b-%j-%q%"
    assert "\0" not in expand(pattern.replace("\0", ""), job_marks(1, name.replace("\0", ""), ""))


@pytest.mark.case(52)
@given(
    st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\0", b""))),
    st.dictionaries(st.text("AB_", min_size=1), st.binary().map(lambda b: b.replace(b"\0", b""))),
)
def test_programs_keep_every_byte(argv: list[bytes], env: dict[str, bytes]) -> None:
    program = Program(
        tuple(part.decode("utf-8", "surrogateescape") for part in argv),
        {name: value.decode("utf-8", "surrogateescape") for name, value in env.items()},
        "/",
        "",
        "",
        "",
        0,
    )
    again = Program.from_json(program.to_json())
    assert again == program
    assert sorted(again.environment()) == sorted(
        name.encode() + b"=" + value for name, value in env.items()
    )


@pytest.mark.case(51)
def test_the_jobs_own_variables_go_first() -> None:
    program = Program((), {"A": "job"}, "/", "", "", "", 0)
    assert set(program.environment(A="server", B="server", C="")) == {b"A=job", b"B=server"}


def test_tokens_belong_to_one_run() -> None:
    keys = AppTokens(b"k")
    token = keys.token(1, 1)
    assert keys.verify(token, 1, 1)
    assert not keys.verify(token, 1, 2)
    assert not keys.verify(token, 11, 1)
    assert not AppTokens(b"other").verify(token, 1, 1)
    assert not keys.verify(b"\xff", 1, 1)
    assert keys.join_secret(1, 1, 2) != keys.join_secret(1, 1, 3)


# ------------------------------------------------------------------ time


def test_timers_fire_once_and_can_be_moved() -> None:
    timers = Timers()
    one, two = (Timer(TimerKind.OFFER, JobId(n), 1) for n in (1, 2))
    timers.set(one, 10)
    timers.set(two, 5)
    timers.set(one, 3)
    assert timers.next_time() == 3
    assert timers.due(2) == []
    assert timers.due(20) == [one, two]
    assert timers.due(20) == []
    assert timers.next_time() is None


def test_jobs_that_ended_leave_no_timers() -> None:
    timers = Timers()
    timers.set(Timer(TimerKind.LIMIT, JobId(0), 1), 1e9)
    for number in range(1, 10_000):
        for kind in (TimerKind.START, TimerKind.LIMIT):
            timers.set(Timer(kind, JobId(number), 1), 1000 + number)
        timers.drop(JobId(number), 1)
    assert len(timers._heap) < 2 * MAX_STALE_ENTRIES
    assert timers.due(1e6) == []
    assert timers.next_time() == 1e9


def test_answers_have_the_time_in_which_nobody_listened() -> None:
    timers = Timers()
    answer, limit, later = (
        Timer(kind, JobId(number), 1)
        for number, kind in enumerate((TimerKind.DEADLINE, TimerKind.LIMIT, TimerKind.LIMIT))
    )
    for timer, at in ((answer, 10), (limit, 10), (later, 90)):
        timers.set(timer, at)
    timers.extend(20, 30)
    assert timers.due(30 + CATCH_UP_S - 0.1) == []
    assert set(timers.due(30 + CATCH_UP_S)) == {answer, limit}
    timers.set(answer, 20)
    timers.extend(50, 60)
    assert timers.due(69) == []
    assert timers.due(70) == [answer]
    assert timers.due(90) == [later]


def test_a_stall_of_the_server_does_not_count_against_nodes() -> None:
    leases = HeartbeatLeases(beat_interval_s=2, lease_s=60)
    leases.open(A, 0)
    leases.open(B, 70)
    leases.extend(40, 71)
    assert leases.overdue(71) == [(A, Health.SUSPECT)]
    assert leases.beat(A, 72) is Health.SUSPECT
    assert leases.overdue(76.9) == []
    assert leases.overdue(77) == [(B, Health.SUSPECT)], "nobody is heard of in the future"


@pytest.mark.parametrize(("slept", "late"), [(0.0, False), (0.9, False), (1.5, True)])
def test_a_wait_that_took_much_too_long_is_measured_as_a_stall(slept: float, late: bool) -> None:
    class Slow(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            time.sleep((timeout or 0.0) + slept)
            return False

    assert (wait_measuring_stall(Slow(), 0.01) > 0) == late
    assert wait_measuring_stall(Slow(), None) == 0


def test_leases_judge_by_silence() -> None:
    leases = HeartbeatLeases(beat_interval_s=2, lease_s=60)
    assert leases.next_deadline() is None
    leases.open(A, 0)
    assert leases.overdue(5.9) == []
    assert leases.next_deadline() == 6
    assert leases.overdue(6) == [(A, Health.SUSPECT)]
    assert leases.overdue(7) == []
    assert leases.next_deadline() == 60
    assert leases.beat(A, 8) is Health.SUSPECT
    assert leases.beat(A, 9) is Health.GOOD
    assert leases.overdue(70) == [(A, Health.LOST)]
    assert leases.beat(A, 71) is Health.LOST
    assert leases.overdue(200) == []
    assert leases.silent(A, 200)
    leases.open(A, 201)
    assert leases.beat(A, 202) is Health.GOOD
    assert leases.beat(B, 202) is None


# ------------------------------------------------------------------ the strategy


def test_a_strategy_that_keeps_failing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Plan:
        raise RuntimeError("no idea")

    planner = Planner("equipartition")
    monkeypatch.setattr(Equipartition, "allocate_processors", fail)
    order = RunStrategy(CycleId(1), View(0.0, (), (), (), (), 0, 0))
    for _ in range(FAULTS_ALLOWED):
        assert planner.fall_back() is None
        failed = planner.run(order)
        assert isinstance(failed, PlanFailed)
        assert failed.reason == "RuntimeError: no idea"
    assert "failed 3 times in a row" in (planner.fall_back() or "")
    assert planner.name == FALLBACK
    assert isinstance(planner.run(order), PlanReady)


# ------------------------------------------------------------------ requests


@pytest.mark.case(55)
@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"argv": []}, "argv", "needs a program"),
        ({"argv": "x"}, "argv", "Expected array, got str"),
        ({"argv": ["a\0b"]}, "argv", "zero byte"),
        ({"argv": ["x" * 131_072]}, "argv", "the limit is 131071"),
        ({"argv": ["x" * 100_000] * 21}, "argv", "the limit is 2000000"),
        ({"env": {"": "x"}}, "env", "no name for a variable"),
        ({"env": {"A=B": "x"}}, "env", "no name for a variable"),
        ({"cwd": "here"}, "cwd", "absolute"),
        ({"umask": 0o1000}, "umask", "0 to 0777"),
        ({"umask": True}, "umask", "got bool"),
        ({"type": "charm"}, "type", "Invalid enum value"),
        ({"sizes": "0"}, "sizes", "at least 1"),
        ({"sizes": "8-2"}, "sizes", "above the maximum"),
        ({"sizes": "a"}, "sizes", "write one of"),
        ({"sizes": "9"}, "sizes", "sizes 9 can never be satisfied: the cluster has 8 processors"),
        ({"sizes": "1-4", "prefer": 7}, "prefer", "preferred size 7"),
        ({"sizes": "2", "type": "uni"}, "sizes", "type uni has one processor"),
        ({"sizes": "2-4", "type": "script"}, "sizes", "a fixed number of processors"),
        ({"time_limit_s": 0}, "time_limit_s", "more than 0"),
        ({"time_limit_s": float("nan")}, "time_limit_s", "more than 0"),
        ({"estimate_s": float("inf")}, "estimate_s", "more than 0"),
        ({"when_cut_off": "stop"}, "when_cut_off", "write keep, or stop-after=SECONDS"),
        ({"when_cut_off": 30}, "when_cut_off", "got int"),
        ({"resources": ["gpu=1"]}, "resources", "no resource 'gpu' (it has lic)"),
        ({"resources": ["lic=4"]}, "resources", "the cluster has 3; ask for at most 3"),
        ({"resources": ["lic=1", "lic=1"]}, "resources", "named twice"),
        ({"nonsense": 1}, "nonsense", "unknown field"),
    ],
)
def test_bad_submissions_are_named(change: dict[str, object], field: str, message: str) -> None:
    with pytest.raises(UserRequestError) as error:
        check_submission({"argv": ["true"], "cwd": "/", **change}, 8, amounts={"lic": 3})
    assert error.value.field == field
    assert message in str(error.value)


def test_without_nodes_users_are_told_to_come_again() -> None:
    with pytest.raises(UserRequestError) as error:
        check_submission({"argv": ["true"], "cwd": "/"}, 0)
    assert error.value.kind == "unavailable"


@pytest.mark.case(53)
def test_one_event_is_one_line() -> None:
    assert escape_control("a\r\n\x1b[31mb\udcff") == r"a\r\n\x1b[31mb\udcff"
    assert escape_control("é plain") == "é plain"
