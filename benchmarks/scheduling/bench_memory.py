"""Three jobs that do not fit into the memory of their node together, under several strategies.

The nodes are control groups with a limit of memory. Each of the three jobs reads the pages of its
own file in a random order, so no swap is necessary. Two such jobs fit into the memory of a node.
Three of them read almost each page from disk again. Two sleeping jobs on each other node leave too
little memory idle for any of the three jobs, so none of them can be moved until the strategy
``v-reconfiguration`` reserves a node. Further sleeping jobs wait in the queue.

The strategies are ``load-sharing`` and ``v-reconfiguration``. A row of the table is a strategy with
its settings; all rows have the same nodes, limits, files and jobs. Each repetition runs all rows,
one after the other, and every second repetition begins with the other strategy. The first five rows
are both strategies; ``load-sharing`` with 2 instead of 3 slots on the first node, which is a better
CPU threshold; and both strategies with sleeping jobs that may also start on the first node. In the
rows ``light``, two of the three jobs run, so that nothing should be moved or reserved.

For each row, the table has the time until the three jobs have ended, as median with its spread, and
the sleeping jobs that ended per minute meanwhile, which a reservation delays.

Budget: under ``v-reconfiguration``, the median time is at most half of that under ``load-sharing``,
and with light load there is no move and no reservation.

It needs root, control groups for memory, no swap space, and a temporary folder (TMPDIR) on a disk.

``python benchmarks/scheduling/bench_memory.py [RUNS [ROW...]]``
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "apps"))

import random_page_reads
from benchkit import APPS, busy, cluster, verdict

from pliant.client.api import Client
from pliant.client.client_errors import RequestError

#: The memory of a node, of the file of each job, and of a sleeping job, in MiB.
NODE, FILE, SLEEPER = 560, 160, 182
PASSES = 6
NAMES = ("m1", "m2", "m3", "m4", "m5")
FIRST = NAMES[0]
SLEEPER_S, SLEEPERS = 10, 200
SLEEP = f"import time; x = b'1' * ({SLEEPER} << 20); time.sleep({SLEEPER_S})"
WAIT_S = 900.0
#: At most this share of the time under load-sharing.
MOST = 0.5


@dataclass(frozen=True)
class Row:
    """A row of the table: a strategy, and the nodes and jobs of its measurement."""

    name: str
    strategy: str
    slots: int = 3
    jobs: int = 3
    #: Whether sleeping jobs may also start on the first node.
    anywhere: bool = False


PLAIN, RESERVING = "load-sharing", "v-reconfiguration"
ROWS = (
    Row("load-sharing", PLAIN),
    Row("v-reconfiguration", RESERVING),
    Row("load-sharing, 2 slots", PLAIN, slots=2),
    Row("load-sharing, anywhere", PLAIN, anywhere=True),
    Row("v-reconfiguration, anywhere", RESERVING, anywhere=True),
    Row("light, load-sharing", PLAIN, jobs=2),
    Row("light, v-reconfiguration", RESERVING, jobs=2),
)


@dataclass(frozen=True)
class Result:
    """The measurements of one run with one strategy."""

    seconds: float
    #: Jobs that were moved, and what the history says about it.
    moves: int
    texts: list[str]
    reservations: int
    #: Sleeping jobs that ended per minute until the jobs had ended.
    sleepers: float
    #: The most major faults per second of the first node, in its reports.
    faults: float

    def __str__(self) -> str:
        return (
            f"{self.seconds:6.1f} s, {self.moves} moves, {self.reservations} reservations, "
            f"{self.sleepers:.0f} sleeping jobs/min, up to {self.faults:.0f} faults/s"
        )


def memory_root() -> Path | None:
    """Return the cgroup in which cgroups with a memory limit can be made; None if there is none."""
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
    """Limit a group's memory to its present use (without files) plus ``mebibytes`` MiB."""
    v1 = (folder / "memory.limit_in_bytes").exists()
    used = int((folder / ("memory.usage_in_bytes" if v1 else "memory.current")).read_text())
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    used -= int(stat["active_file"]) + int(stat["inactive_file"])
    name = "memory.limit_in_bytes" if v1 else "memory.max"
    (folder / name).write_text(str(max(0, used) + (mebibytes << 20)))


def controller(base: Path, folder: Path, name: str, slots: int) -> subprocess.Popen[bytes]:
    """Start the controller of a node in a control group.

    Args:
        base: the folder for the controller's files.
        folder: the folder of the control group.
        name: the name of the node.
        slots: the number of processors of the node.
    """
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
    """Wait until ``ready`` returns true; end with an error after ``WAIT_S`` seconds.

    Args:
        what: the condition as a text, for the error.
        ready: returns whether the condition is true.
    """
    until = time.monotonic() + WAIT_S
    while not ready():
        if time.monotonic() > until:
            raise SystemExit(f"waited {WAIT_S:.0f} s in vain until {what}")
        time.sleep(0.2)


@contextmanager
def nodes(root: Path, client: Client, base: Path) -> Iterator[None]:
    """Start the nodes, each in a control group with a limit of memory; remove them at the end."""
    held = []
    try:
        for name in NAMES:
            held.append(group(root, name))
            controller(base, held[-1].__enter__(), name, 3 if name == FIRST else 2)
        for name in NAMES:
            wait(f"{name} is up", lambda: is_up(client, name))  # noqa: B023
        for name in NAMES:
            limit(root / f"pliant-bench-{os.getpid()}-{name}", NODE)
        yield
    finally:
        for each in reversed(held):
            each.__exit__(None, None, None)


def run(root: Path, strategy: str, rows: Sequence[Row]) -> Iterator[tuple[Row, Result]]:
    """Run the jobs of each row of the table under one strategy, and yield each row with its result.

    All rows use the same nodes. ``root`` is the folder of the control groups.
    """
    options = ("--strategy", strategy, "--strategy-option", "fault-threshold=200")
    with cluster(1, 1, *options) as (client, base):
        client.drain("n1")
        with nodes(root, client, base):
            for row in rows:
                folder = base / row.name.replace(" ", "-")
                folder.mkdir()
                for name in NAMES[1:]:
                    client.drain(name)
                begin = max((event.seq for event in client.history()), default=0)
                if row.slots < 3:  # Another small job uses the third slot.
                    client.submit("sleep", "100000", type="uni", stdout="/dev/null")
                jobs = submit(client, folder, row.jobs)
                wait("the first two jobs run", lambda: is_running(client, jobs[:2]))  # noqa: B023
                for name in NAMES[1:]:
                    client.resume(name)
                yield row, measure(client, folder, jobs, row, begin)
                end_all(client)


def end_all(client: Client) -> None:
    """End all jobs, including jobs that end on their own meanwhile."""
    with suppress(RequestError):
        client.cancel(*[job.id for job in client.jobs()])
    wait("all jobs have ended", lambda: not client.jobs())


def is_running(client: Client, jobs: Sequence[int]) -> bool:
    """Return whether all of these jobs run."""
    return all(client.job(job).state == "RUNNING" for job in jobs)


def is_up(client: Client, name: str) -> bool:
    """Return whether a node is up."""
    return any(node.name == name and node.state == "UP" for node in client.nodes())


def is_filled(client: Client, jobs: list[int]) -> bool:
    """Return whether sleeping jobs hold all slots and their full memory on all but the first node.

    Args:
        client: the connection to the server.
        jobs: the jobs that do not sleep.
    """
    nodes = [node for node in client.nodes() if node.name in NAMES[1:]]
    for node in nodes:
        sleeping = len(set(node.jobs) - set(jobs))
        demand = -1 if node.load is None else node.load["demand_bytes"]
        if node.used < node.slots or demand < sleeping * SLEEPER << 20:
            return False
    return True


def submit(client: Client, base: Path, number: int) -> list[int]:
    """Submit ``number`` jobs that read files, and return their ids.

    They begin to read when the file ``go`` exists in the folder ``base``.
    """
    jobs = []
    for place in range(number):
        file = base / f"file{place}"
        random_page_reads.prepare(file, FILE)
        program = (sys.executable, str(APPS / "random_page_reads.py"), str(file), str(FILE))
        more = (str(PASSES), str(base / "go"))
        jobs.append(client.submit(*program, *more, stdout=str(base / f"out{place}")))
    return jobs


def measure(client: Client, base: Path, jobs: list[int], row: Row, begin: int) -> Result:
    """Measure a row: how long the jobs that read files take while sleeping jobs fill other nodes.

    Args:
        client: the connection to the server.
        base: the folder of the outputs.
        jobs: the jobs that read files; they have been submitted, and wait for a signal to begin.
        row: the row of the table.
        begin: the number of the last event in the history before the row.
    """
    exclude = "" if row.anywhere else FIRST
    sleepers = [
        client.submit(sys.executable, "-c", SLEEP, type="uni", exclude=exclude, stdout="/dev/null")
        for _ in range(SLEEPERS)
    ]
    wait("the jobs run", lambda: is_running(client, jobs))
    wait(
        "the jobs have registered",
        lambda: all(
            any(event.kind == "application.registered" for event in client.history(job))
            for job in jobs
        ),
    )
    wait("the other nodes are filled", lambda: is_filled(client, jobs))
    began = time.time()
    (base / "go").touch()
    faults = 0.0

    def have_ended() -> bool:
        nonlocal faults
        first = next(node.load for node in client.nodes() if node.name == FIRST)
        faults = max(faults, first["major_faults_per_s"] if first is not None else 0.0)
        return all(client.job(job).final for job in jobs)

    wait("the jobs have ended", have_ended)
    end = max(client.job(job).end or 0.0 for job in jobs)
    texts = {(base / f"out{place}").read_text().split("\n")[-2] for place in range(len(jobs))}
    if any(client.job(job).state != "COMPLETED" for job in jobs) or len(texts) != 1:
        raise SystemExit(f"the jobs failed, or their checksums differ: {texts}")
    ended = [client.job(job).end for job in sleepers]
    slept = sum(began < at <= end for at in ended if at is not None)
    events = [event for event in client.history() if event.seq > begin]
    reservations = sum("reserving" in e.text for e in events if e.kind == "node.reserved")
    kinds = ("job.moving", "job.moved", "job.not-moved")
    told = [event for event in events if event.kind in kinds]
    minutes = (end - began) / 60
    return Result(
        end - began,
        sum(event.kind == "job.moved" for event in told),
        [event.text for event in told],
        reservations,
        slept / minutes,
        faults,
    )


def main(runs: int, names: list[str]) -> int:
    """Print a line for each run and each row; return 1 if the budget is exceeded."""
    root = memory_root() if os.geteuid() == 0 else None
    if root is None or has_swap():
        print("skipped: it needs root, control groups for memory, and no swap space")
        return 0
    # So that the control groups and their processes are removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    rows = [row for row in ROWS if not names or row.name in names]
    found: dict[str, list[Result]] = {row.name: [] for row in rows}
    for number in range(runs):
        for strategy in (PLAIN, RESERVING) if number % 2 == 0 else (RESERVING, PLAIN):
            own = [row for row in rows if row.strategy == strategy]
            for row, result in run(root, strategy, own) if own else ():
                found[row.name].append(result)
                print(f"{row.name:28} {result} ({busy()})", flush=True)
                for text in result.texts:
                    print(f"    {text}")
    for name, results in found.items():
        times = sorted(each.seconds for each in results)
        rate = statistics.median(each.sleepers for each in results)
        moves = [each.moves for each in results]
        reservations = [each.reservations for each in results]
        print(
            f"{name:28} {statistics.median(times):6.1f} s [{times[0]:.1f}-{times[-1]:.1f}], "
            f"moves {moves}, reservations {reservations}, {rate:.0f} sleeping jobs/min"
        )
    return 0 if judge(found) else 1


def judge(found: dict[str, list[Result]]) -> bool:
    """Print each result next to its budget; return whether all are within their budgets."""
    good = True
    if found.get(PLAIN) and found.get(RESERVING):
        median = {n: statistics.median(r.seconds for r in found[n]) for n in (PLAIN, RESERVING)}
        share = median[RESERVING] / median[PLAIN]
        good &= verdict("v-reconfiguration, part of the time", share, MOST, "of 1")
    for result in found.get("light, v-reconfiguration", ()):
        good &= verdict("moves and reservations, light", result.moves + result.reservations, 0, "")
    return good


def has_swap() -> bool:
    """Return whether this machine has swap space, into which sleeping jobs would be paged."""
    return len(Path("/proc/swaps").read_text().splitlines()) > 1


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, sys.argv[2:]))
