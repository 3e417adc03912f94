"""Which CPUs a slot has, and that all threads of a process are bound to new ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pliant.nodectl.host import procfs
from pliant.nodectl.host.cpus import (
    Place,
    bind_tree,
    cpus_of_slots,
    format_cpus,
    parse_cpus,
    places,
)
from testkit import wait_until

#: Two packages of two cores with two hardware threads each, numbered as Linux usually does.
TWO_PACKAGES = [Place(cpu % 4 // 2, cpu % 2, cpu) for cpu in range(8)]

#: Starts threads, a child, and threads in the child; then more, while it is bound.
TREE = """
import os, sys, threading, time
def threads():
    for _ in range(3):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
threads()
if os.fork() == 0:
    threads()
print("ready", flush=True)
for _ in range(20):
    threads()
    time.sleep(0.01)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0", [0]), ("0-3,8", [0, 1, 2, 3, 8]), ("5, 1-2", [1, 2, 5]), ("3,3", [3])],
)
def test_a_list_of_cpus_is_read_and_written(text: str, cpus: list[int]) -> None:
    assert parse_cpus(text) == cpus
    assert parse_cpus(format_cpus(cpus)) == cpus


@pytest.mark.parametrize("text", ["", "a", "1-", "3-1", "-1", "1;2", "1_0"])
def test_a_wrong_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="CPU"):
        parse_cpus(text)


@pytest.mark.parametrize(
    ("slots", "cpus"),
    [
        (1, [(0, 4, 1, 5, 2, 6, 3, 7)]),
        (2, [(0, 4, 1, 5), (2, 6, 3, 7)]),  # a package each
        (3, [(0, 4), (1, 5), (2, 6)]),  # one core is left over
        (4, [(0, 4), (1, 5), (2, 6), (3, 7)]),
        (6, [(0,), (1,), (2,), (3,), (4,), (5,)]),  # other cores first
        (8, [(0,), (1,), (2,), (3,), (4,), (5,), (6,), (7,)]),
        (9, []),
    ],
)
def test_slots_get_whole_cores_and_neighbours_different_ones(
    slots: int, cpus: Sequence[tuple[int, ...]]
) -> None:
    assert cpus_of_slots(slots, TWO_PACKAGES) == cpus


def test_only_available_threads_of_a_core_are_used() -> None:
    available = [place for place in TWO_PACKAGES if place.cpu in {1, 5, 6}]
    assert cpus_of_slots(2, available) == [(1, 5), (6,)]
    assert cpus_of_slots(3, available) == [(1,), (6,), (5,)]


def test_the_topology_is_that_of_the_kernel(tmp_path: Path) -> None:
    for place in TWO_PACKAGES:
        folder = tmp_path / f"cpu{place.cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{place.package}\n")
        (folder / "core_id").write_text(f"{place.core}\n")
    assert places(range(8), str(tmp_path)) == TWO_PACKAGES
    assert places([3, 4], str(tmp_path / "none")) == [Place(0, 3, 3), Place(0, 4, 4)]


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", TREE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        for pid in (process.pid, *procfs.descendants(process.pid)):
            os.kill(pid, 9)


def affinities(root: int) -> set[frozenset[int]]:
    """Return the different affinities of all threads of a process and its descendants."""
    tasks = [t for pid in (root, *procfs.descendants(root)) for t in procfs.tasks(pid)]
    assert len(tasks) > 8
    return {frozenset(os.sched_getaffinity(task)) for task in tasks}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is only one CPU")
def test_all_threads_and_children_are_bound_while_more_are_started(
    tree: subprocess.Popen[str],
) -> None:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    assert bind_tree([tree.pid], {first})
    wait_until(lambda: len(procfs.tasks(tree.pid)) > 60, what="all threads")
    assert affinities(tree.pid) == {frozenset({first})}
    # Given another processor, all threads may use both.
    assert bind_tree([tree.pid], {first, second}, former={first})
    assert affinities(tree.pid) == {frozenset({first, second})}
    # A thread that the program has bound keeps its own CPU as long as that is allowed.
    os.sched_setaffinity(procfs.tasks(tree.pid)[-1], {second})
    assert bind_tree([tree.pid], {first, second}, former={first, second})
    assert frozenset({second}) in affinities(tree.pid)
    assert bind_tree([tree.pid], {first}, former={first, second})
    assert affinities(tree.pid) == {frozenset({first})}


def test_a_process_that_has_ended_needs_no_binding() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        process.wait()
    assert bind_tree([process.pid], {0})
