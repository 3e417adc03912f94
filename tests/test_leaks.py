"""The leak fixture finds what it should find and nothing else."""

from __future__ import annotations

import subprocess
import sys
import threading

from testkit import Leaks, session_processes, wait_until

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_child_is_found_and_ended() -> None:
    leaks = Leaks(detached=False)
    child = subprocess.Popen(SLEEP)
    found = leaks.find(within=0.0)
    assert len(found) == 1
    assert f"process {child.pid} " in found[0]
    child.wait(timeout=30)
    assert leaks.find(within=0.0) == []


def test_a_detached_grandchild_is_found_and_ended() -> None:
    leaks = Leaks(detached=True)
    code = f"import subprocess; subprocess.Popen({SLEEP!r}, start_new_session=True)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    wait_until(session_processes)
    assert len(leaks.find(within=0.0)) == 1
    wait_until(lambda: not leaks.find(within=0.0))


def test_a_thread_is_found_unless_it_is_a_daemon() -> None:
    leaks = Leaks(detached=False)
    stop = threading.Event()
    threads = [
        threading.Thread(target=stop.wait, name="left", daemon=False),
        threading.Thread(target=stop.wait, name="daemon", daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        assert leaks.find(within=0.0) == ["thread 'left' still runs"]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert leaks.find(within=0.0) == []


def test_what_ends_within_the_grace_time_is_no_leak() -> None:
    leaks = Leaks(detached=False)
    thread = threading.Timer(0.05, lambda: None)
    thread.start()
    assert leaks.find() == []
