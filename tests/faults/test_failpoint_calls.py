"""A process does what it was told at the places it comes by, and nothing without orders."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pliant.faults import active, before_write, failpoint, message
from pliant.faults.failpoint_actions import EXIT_CODE, FailpointReached, Trigger
from testkit import wait_until
from testkit.processes import run_python

HERE = "shim.ready"
COUNT = f"""
from pliant.faults import failpoint
for number in range(4):
    try:
        failpoint("{HERE}")
    except RuntimeError:
        print(number, end=" ")
"""


def test_nothing_happens_unasked() -> None:
    assert not active()
    failpoint("there is no such name, and nobody looks")
    assert len(message("nor is there this one")) == 1
    before_write()


@pytest.mark.parametrize(
    ("options", "hits"),
    [("", "0 1 2 3"), (",once", "0"), (",after=2", "2 3"), (",after=2,once", "2")],
)
def test_how_often_it_happens(options: str, hits: str) -> None:
    done = run_python("-c", COUNT, env={"PLIANT_FAILPOINTS": f"{HERE}=raise{options}"})
    assert done.stdout.split() == hits.split()
    assert done.stderr.count(f"pliant: failpoint {HERE}: raise") == len(hits.split())


def test_a_latch_lets_it_happen_once_in_all_processes(tmp_path: Path) -> None:
    env = {"PLIANT_FAILPOINTS": f"{HERE}=raise,once={tmp_path / 'latch'}"}
    assert [run_python("-c", COUNT, env=env).stdout for _ in range(2)] == ["0 ", ""]


@pytest.mark.parametrize(("action", "code"), [("kill", -signal.SIGKILL), ("exit", EXIT_CODE)])
def test_a_process_ends(action: str, code: int) -> None:
    done = run_python("-c", COUNT, env={"PLIANT_FAILPOINTS": f"{HERE}={action}"}, check=False)
    assert done.returncode == code


def test_a_message_is_lost_or_comes_twice() -> None:
    trigger = Trigger("shim.kill=double,once; server.exits.in=drop,after=1", {})
    assert [trigger.reach("shim.kill") for _ in range(3)] == [2, 1, 1]
    assert [trigger.reach("server.exits.in") for _ in range(3)] == [1, 0, 0]
    assert trigger.reach(HERE) == 1


def test_a_disk_is_full_for_a_while() -> None:
    trigger = Trigger("shim.claimed=full-disk:0.2,once", {})
    trigger.before_write()
    trigger.reach("shim.claimed")
    with pytest.raises(OSError, match="No space left on device"):
        trigger.before_write()
    wait_until(lambda: not raises(trigger.before_write), what="room")


def raises(call: Callable[[], None]) -> bool:
    try:
        call()
    except OSError:
        return True
    return False


def test_only_those_who_are_meant() -> None:
    orders = f"{HERE}@rank=1@role=join=raise"
    meant = Trigger(orders, {"PMI_RANK": "1", "PLIANT_ROLE": "join"})
    with pytest.raises(FailpointReached, match=HERE):
        meant.reach(HERE)
    meant.reach("shim.started")
    other = Trigger(orders, {"PMI_RANK": "1"})
    other.reach(HERE)
    other.identify(role="join")
    with pytest.raises(FailpointReached):
        other.reach(HERE)


def test_a_changed_file_of_orders_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "orders"
    trigger = Trigger(f"@{file}", {})
    trigger.reach(HERE)
    for _ in range(2):
        file.write_text(f"{HERE}=raise,once")
        with pytest.raises(FailpointReached):
            trigger.reach(HERE)
        trigger.reach(HERE)
        file.write_text("")
        trigger.reach(HERE)


@pytest.mark.parametrize("by_file", [False, True])
def test_invalid_orders_end_the_process(by_file: bool, tmp_path: Path) -> None:
    (tmp_path / "orders").write_text("nonsense")
    text = f"@{tmp_path / 'orders'}" if by_file else "nonsense"
    done = run_python("-c", COUNT, env={"PLIANT_FAILPOINTS": text}, check=False)
    assert done.returncode == EXIT_CODE
    assert done.stderr == "pliant: PLIANT_FAILPOINTS: nonsense: expected NAME=ACTION\n"
