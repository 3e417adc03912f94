"""Sums over a tree of processes, which include those that have ended."""

from __future__ import annotations

import json

from testkit import run_python

#: Forks children that compute, write, or have an orphan, and prints the load before and after.
PROGRAM = """
import json, os, sys, time
from pliant.nodectl.host.procfs import COUNTERS
from pliant.nodectl.shim.process_load import ProcessLoad
from pliant.nodectl.shim.rank_fork_exec import become_subreaper

become_subreaper()
ROOT = os.getpid()
load = ProcessLoad(ROOT)
SIZE = 1 << 20

def compute():
    start = time.process_time()
    while time.process_time() - start < 0.2:
        pass

def write():
    with open(os.devnull, "wb") as file:
        for _ in range(10):
            file.write(b"x" * SIZE)

def run(*functions, wait):
    'Fork a process that runs functions in children; with `wait`, it waits for them, and stays.'
    here, there = os.pipe()
    child = os.fork()
    if not child:
        for function in functions:
            grandchild = os.fork()
            if not grandchild:
                if not wait:  # an orphan, whose parent has ended before it works
                    while os.getppid() != ROOT:
                        time.sleep(0.001)
                function()
                os._exit(0)
            if wait:
                os.waitpid(grandchild, 0)
        if wait:
            os.write(there, b"x")
            time.sleep(600)
        os._exit(0)
    if wait:
        os.read(here, 1)
    return child

seen = []
def note():
    found = load.measure(search=True)
    seen.append({"processes": found.processes, "resident": found.resident_bytes,
        "demand": found.demand_bytes, **dict(zip(COUNTERS, found.counters))})

def reap(count):
    for _ in range(count):
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid
        load.measure(search=False)
        load.measure(search=True)
        os.waitpid(ended, 0)

note()
child = run(compute, write, wait=True)
note()
os.kill(child, 9)
reap(1)
note()
run(compute, write, wait=False)
reap(3)
note()
print(json.dumps(seen))
"""


def test_sums_include_children_orphans_and_processes_that_have_ended() -> None:
    before, one, after, orphans = json.loads(run_python("-c", PROGRAM).stdout)
    assert before["processes"] == 0
    assert one["processes"] == 1
    assert one["demand"] >= one["resident"] > 1 << 20
    assert one["user_s"] + one["system_s"] >= 15  # ticks of 10 ms
    assert one["wchar"] >= 10 << 20
    assert after["processes"] == after["resident"] == 0
    assert after["demand"] == one["demand"]
    for earlier, later in ((before, one), (one, after), (after, orphans)):
        counters = earlier.keys() - {"processes", "resident"}
        assert all(earlier[name] <= later[name] for name in counters)
    # Each process counts once, although first its parent and then this one waits.
    assert 10 << 20 <= after["wchar"] < 11 << 20
    assert 20 << 20 <= orphans["wchar"] < 21 << 20
    assert orphans["user_s"] + orphans["system_s"] >= 30
