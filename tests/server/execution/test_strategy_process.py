"""Strategies that are not ours, in real processes: good ones, and every kind of bad one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from corekit.views import make_view, waiting
from pliant.core.commands import RunStrategy
from pliant.core.events import PlanFailed, PlanReady
from pliant.core.model.views_and_plans import View
from pliant.core.values.ids import CycleId
from pliant.core.values.processors import block
from pliant.core.values.speedup import Amdahl
from pliant.server.execution.planner import FALLBACK, FAULTS_ALLOWED, Planner
from pliant.server.execution.strategy_process import (
    StrategyProcess,
    StrategyProcessError,
    StrategyRefusedError,
)
from testkit import run_python, wait_until

#: Long enough for a loaded machine to start an interpreter, and for a good plan.
PATIENCE_S = 60.0

STRATEGIES = '''
import os, re, sys, time
from dataclasses import replace
from pliant.core.model.views_and_plans import Plan, Start
from pliant.strategies.queueing_presets import fcfs
from pliant.strategies.queueing import Composed


class Good(Composed):
    """First come, first served.

    Args:
        most: unused.
    """

    def __init__(self, *, most: int = 3):
        super().__init__()
        if most < 0:
            raise ValueError(f"most {most} is below 0")

    def allocate_processors(self, view):
        print("for the log, not for the pipe")
        assert sys.stdin.read() == ""
        seen = view.memory or 0
        return replace(super().allocate_processors(view), memory=seen + 1)


class Odd(Composed):
    def allocate_processors(self, view):
        return getattr(self, view.waiting[0].user)(view)

    def good(self, view):
        return super().allocate_processors(view)

    def hangs(self, view):
        while True:
            pass

    def holds_the_interpreter(self, view):
        re.match("(a+)+b", "a" * 64)

    def sleeps_with_a_child(self, view):
        import subprocess
        child = subprocess.Popen(["sleep", "1000"])
        with open(os.environ["CHILD_FILE"], "w") as file:
            file.write(str(child.pid))
        time.sleep(1000)

    def exits(self, view):
        os._exit(7)

    def leaves(self, view):
        sys.exit(3)

    def crashes(self, view):
        os.kill(os.getpid(), 11)

    def raises(self, view):
        raise RuntimeError("no idea")

    def no_plan(self, view):
        return 42

    def odd_numbers(self, view):
        return Plan(starts=(Start("first", 2.5),))

    def odd_memory(self, view):
        return Plan(memory=b"bytes")

    def garbage(self, view):
        for number in range(3, 20):
            try:
                os.write(number, b"x" * 100)
            except OSError:
                pass
        time.sleep(1000)

    def an_object(self, view):
        class Trap:
            def __reduce__(self):
                return os.system, ("touch trapped",)
        import pliant.server.execution.strategy_worker as worker
        worker.msgspec.to_builtins = lambda plan: Trap()
        return Plan()

    def too_much(self, view):
        size = view.waiting[0].sizes.max
        return Plan(starts=tuple(Start(job.id, (1 << size) - 1) for job in view.waiting))

    def not_there(self, view):
        return Plan(starts=(Start(view.waiting[0].id, 15 << 4000),))


def broken():
    raise RuntimeError("no strategy today")


def leaving():
    sys.exit(5)


def hanging():
    time.sleep(1000)
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs.py").write_text(STRATEGIES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.fixture
def make() -> Iterator[Callable[..., StrategyProcess]]:
    """Return a maker of processes, which end with the test."""
    made: list[StrategyProcess] = []

    def start(name: str, **options: object) -> StrategyProcess:
        made.append(StrategyProcess(f"theirs:{name}", options))
        return made[-1]

    yield start
    for process in made:
        process.close()


def view(kind: str, memory: object = None) -> View:
    """A free machine of 8 and two jobs of 4; a strategy of ours reads ``kind`` off the first."""
    queue = (
        replace(waiting(1, "4", 60.0, speedup=Amdahl(0.9)), user=kind),
        waiting(2, "4"),
    )
    return make_view(8, queue, memory=memory)


# ---------------------------------------------------------------- one that is fine


def test_a_good_one_plans_with_memory_and_prints_to_the_log(
    make: Callable[..., StrategyProcess], capfd: pytest.CaptureFixture[str]
) -> None:
    process = make("Good", most=5)
    process.check(PATIENCE_S)
    pid = process.pid
    plan = process.plan(view(""), PATIENCE_S)
    assert [start.processors for start in plan.starts] == [block(0, 4), block(4, 4)]
    again = process.plan(view("", plan.memory), PATIENCE_S)
    assert (plan.memory, again.memory, process.pid) == (1, 2, pid)
    assert "for the log, not for the pipe" in capfd.readouterr().err


def test_wide_machines_and_long_queues_fit_through_the_pipe(
    make: Callable[..., StrategyProcess],
) -> None:
    queue = tuple(waiting(number, "1-100000:x2", 60.0) for number in range(1, 5001))
    wide = make_view(100_000, queue, per_node=1000)
    plan = make("Good").plan(wide, PATIENCE_S)
    assert plan.starts[0].processors == block(0, 65536)
    assert sum(start.processors.bit_count() for start in plan.starts) == 100_000


@pytest.mark.parametrize(
    ("name", "options", "key", "says"),
    [
        ("Missing", {}, "strategy", "has no attribute 'Missing'"),
        ("Good", {"least": 1}, "strategy_options", "has no option 'least'; it has: most"),
        ("Good", {"most": "few"}, "strategy_options", "option most: 'few' is not a whole number"),
        ("Good", {"most": -1}, "strategy_options", "most -1 is below 0"),
    ],
)
def test_what_cannot_be_loaded_is_refused(
    make: Callable[..., StrategyProcess],
    name: str,
    options: dict[str, object],
    key: str,
    says: str,
) -> None:
    with pytest.raises(StrategyRefusedError, match=says) as caught:
        make(name, **options).check(PATIENCE_S)
    assert caught.value.key == key


def test_options_that_no_command_line_takes_are_refused(
    make: Callable[..., StrategyProcess],
) -> None:
    with pytest.raises(StrategyRefusedError, match="the limit is") as caught:
        make("fcfs", text="x" * 200_000)
    assert caught.value.key == "strategy_options"


def test_one_that_cannot_even_be_made(
    make: Callable[..., StrategyProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its end follows the end of its pipes late on a busy machine.
    monkeypatch.setattr("pliant.server.execution.strategy_process._COLLECT_S", PATIENCE_S)
    with pytest.raises(StrategyRefusedError, match="cannot be made: RuntimeError: no strategy to"):
        make("broken").check(PATIENCE_S)
    with pytest.raises(
        StrategyProcessError, match="cannot be made: RuntimeError: no strategy toda"
    ):
        make("broken").plan(view(""), PATIENCE_S)
    with pytest.raises(StrategyProcessError, match=r"^its process ended with exit code 5$"):
        make("leaving").check(PATIENCE_S)
    with pytest.raises(StrategyProcessError, match=r"^no answer within 0\.5 s$"):
        make("hanging").check(0.5)


# ---------------------------------------------------------------- bad ones


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("exits", "its process ended with exit code 7"),
        ("leaves", "SystemExit: 3"),
        ("crashes", "its process ended with signal 11"),
        ("raises", "RuntimeError: no idea"),
        ("no_plan", "returned int, no Plan"),
        ("odd_numbers", "its plan makes no sense: Expected `int`, got `str`"),
        ("odd_memory", "TypeError: Object of type bytes is not JSON serializable"),
        ("garbage", "answered with something that is no message"),
        ("an_object", "answered with something that is no message"),
    ],
)
def test_a_strategy_process_that_fails_is_replaced_by_one_that_plans(
    make: Callable[..., StrategyProcess], kind: str, says: str, tmp_path: Path
) -> None:
    process = make("Odd")
    pid = process.pid
    with pytest.raises(StrategyProcessError) as caught:
        process.plan(view(kind), PATIENCE_S)
    assert says in str(caught.value)
    assert process.pid != pid
    assert not os.path.exists(f"/proc/{pid}")
    assert not list(tmp_path.rglob("trapped"))
    assert len(process.plan(view("good"), PATIENCE_S).starts) == 2


@pytest.mark.parametrize("kind", ["hangs", "holds_the_interpreter", "sleeps_with_a_child"])
def test_one_that_hangs_is_ended_at_the_deadline_with_all_it_started(
    make: Callable[..., StrategyProcess],
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = tmp_path / "child"
    monkeypatch.setenv("CHILD_FILE", str(child))
    process = make("Odd")
    process.check(PATIENCE_S)
    begin = time.monotonic()
    with pytest.raises(StrategyProcessError, match=r"^no answer within 1\.5 s$"):
        process.plan(view(kind), 1.5)
    assert time.monotonic() - begin > 1.4, "it had its time"
    if kind == "sleeps_with_a_child":
        wait_until(lambda: not _runs(int(child.read_text())))
    assert len(process.plan(view("good"), PATIENCE_S).starts) == 2


def workers() -> list[int]:
    """Return the processes of strategies that were started here."""
    children = psutil.Process().children()
    return [child.pid for child in children if "strategy_worker" in " ".join(child.cmdline())]


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("kind", ["hangs", "holds_the_interpreter"])
def test_a_strategy_process_ends_with_the_server_even_while_it_hangs(
    kind: str, tmp_path: Path
) -> None:
    code = """
import os, sys, time
from pliant.server.execution.strategy_process import StrategyProcess
from pliant.server.execution.strategy_worker import frame
from corekit.views import make_view, waiting
from dataclasses import replace
process = StrategyProcess("theirs:Odd", {})
process.check(60)
view = make_view(8, (replace(waiting(1, "4"), user=sys.argv[1]),))
process._send(frame(view), time.monotonic() + 60)
print(process.pid, flush=True)
os._exit(1)
"""
    here = Path(__file__).parent.parent.parent / "support"
    path = os.pathsep.join([str(tmp_path), str(here)])
    done = run_python("-c", code, kind, check=False, env={**os.environ, "PYTHONPATH": path})
    pid = int(done.stdout)
    wait_until(lambda: not _runs(pid))


# ---------------------------------------------------------------- what the planner makes of it


@pytest.fixture
def planner() -> Iterator[Planner]:
    made = Planner("theirs:Odd", deadline_s=PATIENCE_S)
    yield made
    made.close()


def order(kind: str) -> RunStrategy:
    return RunStrategy(CycleId(1), view(kind))


@pytest.mark.case(64)
def test_a_fault_costs_one_cycle_and_three_in_a_row_replace_the_strategy(planner: Planner) -> None:
    kinds = ["raises", "too_much", "good", "exits", "not_there", "no_plan"]
    answers = []
    for kind in kinds:
        assert planner.fall_back() is None
        answers.append(planner.run(order(kind)))
    reasons = [each.reason if isinstance(each, PlanFailed) else "" for each in answers]
    assert reasons == [
        "RuntimeError: no idea",
        "starts job 2 on processors that are not there: 0-3",
        "",
        "its process ended with exit code 7",
        "starts job 1 on processors that are not there: 4000-4003",
        "returned int, no Plan",
    ]
    (pid,) = workers()
    assert f"failed {FAULTS_ALLOWED} times in a row; {FALLBACK} takes over" in (
        planner.fall_back() or ""
    )
    assert not _runs(pid)
    assert isinstance(planner.run(order("raises")), PlanReady)


def test_only_foreign_strategies_run_in_a_process_of_their_own(planner: Planner) -> None:
    assert len(workers()) == 1
    assert Planner("egs+pra", {"threshold": 1}).name == "egs+pra"
    assert len(workers()) == 1
    planner.close()
    planner.close()


def test_check_tells_what_is_wrong_with_a_strategy_of_others() -> None:
    def check(*words: str) -> str:
        done = run_python("-m", "pliant.server", "--check", "--strategy", *words, check=False)
        return f"{done.returncode}: {done.stderr.strip().splitlines()[-1:]}"

    assert check("theirs:Good") == "0: []"
    assert "2: " in check("theirs:Missing")
    assert "strategy_options: strategy theirs:Good has no option 'least'; it has: most" in check(
        "theirs:Good", "--strategy-option", "least=1"
    )
    assert "cannot be made: RuntimeError: no strategy today" in check("theirs:broken")
    assert "strategy: theirs:leaving: its process ended with exit code 5" in check("theirs:leaving")
