"""Three jobs that do not fit into the memory of their node together, under several strategies.

The nodes are control groups with a limit of memory. Each of the three jobs reads the pages of its
own file in a random order. Two such jobs fit into the memory of a node. Three of them read almost
each page from disk again. Two sleeping jobs on each other node leave too little memory idle for any
of the three jobs, so none of them can be moved until ``v-reconfiguration`` reserves a node. Further
sleeping jobs wait in the queue.

The rows are: ``load-sharing``; ``v-reconfiguration``; and ``load-sharing`` with 2 instead of 3
slots on the first node, which is a better CPU threshold. A row ``light`` runs two of the three jobs
under ``v-reconfiguration``: it should neither move a job nor reserve a node.

Budget: under ``v-reconfiguration``, the median of the time until the three jobs have ended is at
most half of that under ``load-sharing``.

It needs root, control groups for memory, and a temporary folder (TMPDIR) on a disk.

``python benchmarks/scheduling/bench_memory.py [RUNS]``
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "apps"))

import working_set
from benchkit import APPS, busy, cluster, verdict

from pliant.client.api import Client
from pliant.client.client_errors import ClientError

#: The memory of a node, of the file of each job, and of a sleeping job, in MiB.
NODE, FILE, SLEEPER = 560, 160, 182
PASSES = 6
NODES, SLEEPER_S, SLEEPERS = 5, 10, 200
SLEEP = f"import time; x = b'1' * ({SLEEPER} << 20); time.sleep({SLEEPER_S})"
WAIT_S = 900.0
#: At most this share of the time under load-sharing.
MOST = 0.5


@dataclass(frozen=True)
class Row:
    """One kind of run."""

    name: str
    strategy: str
    slots: int = 3
    jobs: int = 3


ROWS = (
    Row("load-sharing", "load-sharing"),
    Row("v-reconfiguration", "v-reconfiguration"),
    Row("load-sharing, 2 slots", "load-sharing", slots=2),
    Row("light", "v-reconfiguration", jobs=2),
)


@dataclass(frozen=True)
class Result:
    """What happened in one run."""

    seconds: float
    moves: list[str]
    reservations: int


def memory_root() -> Path | None:
    """Return the folder in which groups with a memory limit can be made; None if there is none."""
    for folder, probe in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "cgroup.subtree_control"),
    ):
        if (folder / probe).exists() and os.access(folder / "cgroup.procs", os.W_OK):
            return folder
    return None


@contextmanager
def group(root: Path, name: str) -> Iterator[Path]:
    """Yield a new control group; at the end, kill the processes in it and remove it."""
    folder = root / f"pliant-bench-{os.getpid()}-{name}"
    if (root / "cgroup.subtree_control").exists():
        (root / "cgroup.subtree_control").write_text("+memory")
    folder.mkdir()
    try:
        yield folder
    finally:
        for _ in range(200):
            inner = sorted(folder.rglob("cgroup.procs"), reverse=True)
            pids = {int(line) for each in inner for line in each.read_text().split()}
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for each in inner:
                with suppress(OSError):
                    each.parent.rmdir()
            if not folder.exists():
                break
            time.sleep(0.05)


def limit(folder: Path, mebibytes: int) -> None:
    """Limit the memory of a group to so many MiB more than it uses already, without files."""
    v1 = (folder / "memory.limit_in_bytes").exists()
    used = int((folder / ("memory.usage_in_bytes" if v1 else "memory.current")).read_text())
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    used -= int(stat["active_file"]) + int(stat["inactive_file"])
    name = "memory.limit_in_bytes" if v1 else "memory.max"
    (folder / name).write_text(str(max(0, used) + (mebibytes << 20)))


def controller(base: Path, folder: Path, name: str, slots: int) -> subprocess.Popen[bytes]:
    """Start the controller of a node in a control group."""
    state, run = os.environ["PLIANT_STATE_DIR"], os.environ["PLIANT_RUN_DIR"]
    config = base / f"{name}.yaml"
    settings = {
        "name": name,
        "slots": slots,
        "memory": f"{NODE}M",
        "load_interval_s": 1,
        "bind": False,
        "address_file": f"{run}/server.address",
        "secret_file": f"{state}/node.secret",
    }
    config.write_text(json.dumps(settings))
    command = f'echo $$ > {folder}/cgroup.procs; exec "$0" -m pliant.nodectl --config {config}'
    (base / name).mkdir(mode=0o700)
    env = {**os.environ, "PLIANT_STATE_DIR": f"{base}/{name}", "PLIANT_RUN_DIR": f"{base}/{name}"}
    with (base / f"{name}.log").open("wb") as log:
        return subprocess.Popen(["sh", "-c", command, sys.executable], env=env, stderr=log)


def wait(what: str, ready: Callable[[], bool]) -> None:
    """Wait until something is the case."""
    until = time.monotonic() + WAIT_S
    while not ready():
        if time.monotonic() > until:
            raise SystemExit(f"waited {WAIT_S:.0f} s in vain until {what}")
        time.sleep(0.2)


def run(root: Path, row: Row) -> Result:
    """Run the three jobs under one strategy."""
    options = ("--strategy", row.strategy, "--strategy-option", "fault-threshold=200")
    with cluster(1, 1, *options) as (client, base):
        client.drain("n1")
        groups = []
        try:
            for number in range(1, NODES + 1):
                held = group(root, f"m{number}")
                folder = held.__enter__()
                groups.append(held)
                name = f"m{number}"
                controller(base, folder, name, row.slots if number == 1 else 2)
                wait(f"{name} is up", lambda: is_up(client, name))  # noqa: B023
                limit(folder, NODE)
                if number == 1:
                    jobs = submit(client, base, row.jobs)
            return measure(client, base, jobs)
        finally:
            for held in reversed(groups):
                held.__exit__(None, None, None)


def is_up(client: Client, name: str) -> bool:
    """Return whether a node is up."""
    return any(node.name == name and node.state == "UP" for node in client.nodes())


def is_filled(client: Client) -> bool:
    """Return whether two sleeping jobs have their memory on each node but the first."""
    loads = [node.load for node in client.nodes() if node.name.startswith("m")][1:]
    return all(load is not None and load["demand_bytes"] > 2 * SLEEPER << 20 for load in loads)


def submit(client: Client, base: Path, number: int) -> list[int]:
    """Submit the jobs that read their files, and wait until those that fit are running."""
    jobs = []
    for place in range(number):
        file = base / f"file{place}"
        working_set.prepare(file, FILE)
        program = (sys.executable, str(APPS / "working_set.py"), str(file), str(FILE))
        more = (str(PASSES), str(base / "go"))
        jobs.append(client.submit(*program, *more, stdout=str(base / f"out{place}")))
    return jobs


def measure(client: Client, base: Path, jobs: list[int]) -> Result:
    """Fill the other nodes, let the jobs begin, and wait until they have ended."""
    sleepers = [
        client.submit(sys.executable, "-c", SLEEP, type="uni", exclude="m1", stdout="/dev/null")
        for _ in range(SLEEPERS)
    ]
    wait("the jobs run", lambda: all(client.job(job).state == "RUNNING" for job in jobs))
    wait(
        "the jobs have registered",
        lambda: all(
            any(event.kind == "application.registered" for event in client.history(job))
            for job in jobs
        ),
    )
    wait("the other nodes are filled", lambda: is_filled(client))
    began = time.time()
    (base / "go").touch()
    wait("the jobs have ended", lambda: all(client.job(job).final for job in jobs))
    seconds = max(client.job(job).end or 0.0 for job in jobs) - began
    texts = {(base / f"out{place}").read_text().split("\n")[-2] for place in range(len(jobs))}
    if any(client.job(job).state != "COMPLETED" for job in jobs) or len(texts) != 1:
        raise SystemExit(f"the jobs failed, or their checksums differ: {texts}")
    events = client.history()
    moves = [event.text for event in events if event.kind == "job.moved"]
    reservations = sum("reserving" in e.text for e in events if e.kind == "node.reserved")
    with suppress(ClientError):  # many of them have ended
        client.cancel(*sleepers)
    return Result(seconds, moves, reservations)


def main(runs: int) -> int:
    """Print a line for each run; return 1 if the budget is exceeded."""
    root = memory_root() if os.geteuid() == 0 else None
    if root is None:
        print("skipped: it needs root and control groups for memory")
        return 0
    times: dict[str, list[float]] = {}
    for _ in range(runs):
        for row in ROWS:
            found = run(root, row)
            times.setdefault(row.name, []).append(found.seconds)
            print(
                f"{row.name:22} {found.seconds:7.1f} s, {len(found.moves)} moves, "
                f"{found.reservations} reservations ({busy()})",
                flush=True,
            )
            for text in found.moves:
                print(f"    {text}")
    median = {name: statistics.median(each) for name, each in times.items()}
    share = median["v-reconfiguration"] / median["load-sharing"]
    return 0 if verdict("v-reconfiguration, part of the time", share, MOST, "of 1") else 1


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
