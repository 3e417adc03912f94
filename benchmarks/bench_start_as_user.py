"""From submission to first instruction: jobs of a user through the root helper, and without it.

The root helper is the program with root privileges that starts processes of other users. Two
clusters of one node each run side by side: one in single-user mode on unix sockets, and one with
TLS, an account for server and controller, and a root helper. Blocks of jobs run on the two clusters
in turns, so that other load on the machine affects both. *back to back*: each job is submitted when
the one before has ended. *at once*: as many jobs as the node has slots are submitted together.
*alone*: there is a pause before each job.

Budget: the median with the helper is at most 1.5 times the median without it.

It needs root, for processes of other users: ``python benchmarks/bench_start_as_user.py [BLOCKS]``
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from benchkit import busy, cluster, figures, verdict

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from helperkit import ALICE, Site
from pliant.client.api import Client

SLOTS, JOBS, BLOCKS, PAUSE_S = 4, 24, 4, 0.4
BUDGET = 1.5

Waits = dict[str, list[float]]


def first_instructions(client: Client, out: Path, number: int) -> list[float]:
    """Submit ``number`` jobs at once; return the seconds from submission to first instruction."""
    targets = [out / str(at) for at in range(number)]
    submitted, jobs = [], []
    for target in targets:
        submitted.append(time.time())
        job = client.submit(
            "/bin/date", "+%s.%N", sizes=1, type="uni", chdir="/", stdout=str(target)
        )
        jobs.append(job)
    for job in jobs:
        client.wait(job)
    found = [float(target.read_text()) for target in targets]
    for target in targets:
        target.unlink()
    return [at - before for at, before in zip(found, submitted, strict=True)]


def block(client: Client, out: Path) -> Waits:
    """Submit jobs back to back, several at once, and alone after a pause.

    Returns:
        For each of these three ways, the seconds from each submission to the first instruction.
    """
    found: Waits = {"back to back": [], "at once": [], "alone": []}
    time.sleep(2 * PAUSE_S)
    for _ in range(JOBS):
        found["back to back"] += first_instructions(client, out, 1)
    for _ in range(JOBS // SLOTS):
        time.sleep(2 * PAUSE_S)
        found["at once"] += first_instructions(client, out, SLOTS)
    for _ in range(JOBS // 2):
        time.sleep(PAUSE_S)
        found["alone"] += first_instructions(client, out, 1)
    return found


def main(words: list[str]) -> int:
    """Measure starts without and with the root helper in turn; return the exit code."""
    if os.geteuid() != 0:
        print("skipped: only root can start processes of other users")
        return 0
    with ExitStack() as stack:
        single, out = stack.enter_context(cluster(1, SLOTS, "--strategy", "fcfs"))
        site = Site(SLOTS)
        stack.callback(site.close)
        site.up()
        sides = {"single user": (single, out), "root helper": (site.as_user(ALICE), site.output)}
        blocks: dict[str, list[Waits]] = {side: [] for side in sides}
        for _ in range(int(words[0]) if words else BLOCKS):
            for side, (client, folder) in sides.items():
                blocks[side].append(block(client, folder))
        print(busy())
    good = []
    for way in blocks["single user"][0]:
        for side, all_waits in blocks.items():
            print(f"{way}, {side}, ms: {figures([w for each in all_waits for w in each[way]])}")
        pairs = zip(*blocks.values(), strict=True)
        ratios = [statistics.median(b[way]) / statistics.median(a[way]) for a, b in pairs]
        print(f"{way}, ratio of each block: {' '.join(f'{ratio:.1f}' for ratio in ratios)}")
        good.append(verdict(f"{way}, median ratio", statistics.median(ratios), BUDGET, "times"))
    return 0 if all(good) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
