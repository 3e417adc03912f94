"""Time to move an array in a resize, and cost of a safe point at which nothing is to be done.

*Moving*: an array of 64 MiB or 1 GiB, distributed by rows, is moved when a job is resized from 4 to
8 ranks and back. There are 4 nodes with 2 processors, and each transport is measured. The time is
that of the step "move", which the application reports, as a multiple of a lower bound, the *floor*.
The floor is one copy of the bytes that change their process, by two processes at once and without
MPI ranks. While ranks wait, a copy takes several times as long, which would make the ratio look
better.

Budgets: 1 GiB 4 -> 8 at <= 3.5 x the floor on the default transport, <= 2.5 x on the fastest.

*Idle*: the same loop with and without ``job.steps(n, every=20)`` on 4 ranks in a cluster. The cost
is the difference of the medians. Budget: <= 10 us per iteration.

``python benchmarks/bench_data.py [ofi] [ucx] [idle]``; ucx runs in a network namespace of its own,
which needs root.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench_resize import resized
from benchkit import APPS, cluster, figures, verdict

CYCLES = 5
VOLUMES = (64, 1024)
MOVED = 7 / 8
IDLE_US = 10.0
#: Of 1 GiB, 4 -> 8: multiples of the floor.
BUDGETS = {"ofi": 3.5, "ucx": 2.5}
COPY = """
import sys, time
import numpy as np
source = np.ones(int(sys.argv[1]) // 8)
target = np.zeros_like(source)
sys.stdin.readline()
start = time.perf_counter()
target[...] = source
print(time.perf_counter() - start)
"""


def floor(volume: int) -> float:
    """Return the lower bound for a move: the seconds in which two processes copy its bytes.

    This is a median. Each process copies half of the bytes that change their process.

    Args:
        volume: the size of the whole array in MiB.
    """
    size = str(int(volume * (1 << 20) * MOVED) // 2)
    took = []
    for _ in range(7):
        pair = [
            subprocess.Popen(
                [sys.executable, "-c", COPY, size],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        time.sleep(0.5 + volume / 1000)  # both have their arrays
        for process in pair:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        took.append(max(float(process.communicate()[0]) for process in pair))
    return statistics.median(took)


def moves(transport: str, volume: int) -> dict[str, list[float]]:
    """Resize a job several times; return the seconds of the step "move" of each resize.

    Args:
        transport: the transport of MPI.
        volume: the size of the array in MiB.

    Returns:
        The seconds, by ``grow`` and ``shrink``.
    """
    with cluster(4, 2, "--strategy", "fcfs", "--transport", transport) as (client, out):
        stop, log = out / "stop", out / "log"
        program = [sys.executable, str(APPS / "resize_data_check.py"), str(volume), str(stop)]
        job = client.submit(*program, sizes="4-8", prefer=4, chdir=str(out), stdout=str(log))
        while client.job(job).class_ != "malleable":
            time.sleep(0.05)
        time.sleep(1.0 + volume / 500)  # its array is filled
        for done, size in enumerate([8, 4] * CYCLES, 1):
            client.resize(job, size)
            deadline = time.monotonic() + 120
            while len(resized(client, job)) < done or client.job(job).state != "RUNNING":
                if time.monotonic() > deadline:
                    raise SystemExit(client.why(job).text)
                time.sleep(0.05)
        stop.touch()
        if client.wait(job).exit_code != 0:
            raise SystemExit(f"the job failed: {log.read_text()}")
        found: dict[str, list[float]] = {"grow": [], "shrink": []}
        for event in resized(client, job):
            found[event.data["direction"]].append(event.data["seconds"]["move"])
        return found


def measure_moves(transport: str) -> bool:
    """Measure every volume on one transport; return whether all are within the budget."""
    good = True
    for volume in VOLUMES:
        least = floor(volume)
        print(f"{transport}, {volume} MiB: floor {1e3 * least:.1f} ms")
        for direction, samples in moves(transport, volume).items():
            times = statistics.median(samples) / least
            ratio = f"{times:.1f} x the floor"
            print(f"  {direction:6}, ms: {figures(samples)}  {ratio}")
            if volume == max(VOLUMES) and direction == "grow":
                name = f"{transport}, {volume} MiB, 4 -> 8"
                good &= verdict(name, times, BUDGETS[transport], "x the floor")
    return good


def measure_idle() -> bool:
    """Measure a safe point with nothing to do; return whether it is within the budget."""
    with cluster(2, 2, "--strategy", "fcfs") as (client, out):
        log = out / "log"
        program = [sys.executable, str(APPS / "safe_point_cost.py"), "20"]
        job = client.submit(*program, sizes=4, chdir=str(out), stdout=str(log))
        if client.wait(job).exit_code != 0:
            raise SystemExit(f"the job failed: {log.read_text()}")
        lines = [line.split() for line in log.read_text().splitlines()]
        found = {name: [float(value) for value in values] for name, *values in lines}
    for name, (median, low, high) in found.items():
        print(f"{name:5} loop, us per iteration: p50 {median:.2f} [{low:.2f}-{high:.2f}]")
    cost = found["safe"][0] - found["plain"][0]
    return verdict("idle safe point, 4 ranks, every=20", cost, IDLE_US, "us per iteration")


def main(names: list[str]) -> int:
    """Measure everything, or the named parts; return 1 if one is over budget, else 0.

    ucx runs in a network namespace of its own.
    """
    if os.environ.get("PLIANT_BENCH_INSIDE"):
        return 0 if measure_moves(names[0]) else 1
    codes = []
    for name in names or ["ofi", "ucx", "idle"]:
        if name == "idle":
            codes.append(0 if measure_idle() else 1)
            continue
        command = [sys.executable, __file__, name]
        if name == "ucx":
            if os.geteuid() != 0:
                print("ucx: skipped, a network namespace of its own needs root")
                continue
            helper = str(Path(__file__).parent / "benchkit" / "loopback_up.py")
            script = '"$0" "$1" && shift && exec "$@"'
            command = ["unshare", "-n", "sh", "-c", script, sys.executable, helper, *command]
        inside = {**os.environ, "PLIANT_BENCH_INSIDE": "1"}
        codes.append(subprocess.run(command, check=False, env=inside).returncode)
    return max(codes, default=0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
