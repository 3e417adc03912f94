"""Cost of negotiations: one round, 200 applications in one cycle, and one that does not answer.

*One round*: the server proposes a new size, and the program answers. The time is measured on the
server's clock, from the moment the core, the server's state machine, makes the proposal until the
core has the answer. It includes the server's threads, gRPC in both directions, and the thread of
appkit in the program that answers the server. The program sleeps, computes in numpy, or loops in
Python. The loop has no budget, because there the thread waits until the interpreter switches to it.
The program bargains over the price until the server's last offer, ten rounds in each negotiation.
The first round is reported apart: all threads sleep before it, and it contains the operator's
request. The same run also measures a message and its echo on a bare gRPC stream between two
processes, at once and after an equal pause, and the shortest durable commit on this disk. Budget:
p50 <= 1.5 ms (see docs/measurements.md).

*200 applications*: a job arrives that needs one processor of each of 200 jobs with two processors.
Server, controllers, jobs, their processes, tokens and gRPC sessions are real. The programs are not:
the processes sleep, and one other process answers for all of them, because 200 ranks with MPI would
measure this machine's memory. This process accepts every offer, and never reaches a safe point. The
arriving job is then cancelled and the agreements are withdrawn, so that the cycle can be repeated.
Budget: <= 0.5 s from the plan of the scheduler to the last answer.

*Silence*: a job waits for processors of an application that does not answer, and other jobs that
need none of these are submitted. The time until their first instruction is compared with the time
before the negotiation began. Budget: p50 at most 5 ms later. The offer does not expire meanwhile.
"""

from __future__ import annotations

import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import grpc
from bench_start import first_instruction
from benchkit import APPS, cluster, figures, verdict

from pliant.client.api import Client, Event

TALKS, ROUNDS, APPLICATIONS, CYCLES = 30, 10, 200, 10
#: Between two talks, or two words, for everybody to fall asleep.
PAUSE_S = 0.05
BUDGET_MS, CYCLE_BUDGET_S, DELAY_MS = 1.5, 0.5, 5.0


def until(done: Callable[[], bool], what: str, pause: float = 0.05) -> None:
    """Wait for a condition, with a pause before each check, because checks cost the server time.

    If it is not true after two minutes, end with a message that names ``what``.

    Args:
        done: returns whether the condition is true.
        what: the condition as a text.
        pause: the pause in seconds.
    """
    deadline = time.monotonic() + 120
    while True:
        time.sleep(pause)
        if done():
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"not within two minutes: {what}")


def of_kind(client: Client, kind: str, job: int | None = None) -> list[Event]:
    """Return the events of one kind, oldest first: those of a job, or of all jobs for None."""
    return [event for event in client.history(job) if event.kind == kind]


# ------------------------------------------------------------------ one round


def rounds(client: Client, out: Path, work: str) -> tuple[list[float], list[float]]:
    """Run negotiations; return the seconds of their first rounds, and of all other rounds.

    ``work`` names what the program does meanwhile: ``sleep``, ``numpy`` or ``python``.
    """
    program = [sys.executable, str(APPS / "counter_offer_app.py"), work]
    job = client.submit(*program, sizes="1-4", prefer=1, chdir=str(out), stdout=str(out / work))
    until(lambda: client.job(job).class_ == "malleable", "the program registers")
    time.sleep(1.0)  # it is past its first safe points
    for number in range(1, TALKS + 1):
        client.resize(job, 2)
        until(partial(_over, client, job, number), "the end of the talk", PAUSE_S)
    history = client.history(job)
    client.cancel(job)
    client.wait(job)
    first, further, asked = [], [], 0.0
    for event in history:
        if event.kind in ("offer.sent", "offer.repeated"):
            asked = event.time
        elif event.kind == "offer.answered":
            (first if event.data["round"] <= 2 else further).append(event.time - asked)
    return first, further


def _over(client: Client, job: int, talks: int) -> bool:
    return len(of_kind(client, "offer.answered", job)) >= talks * ROUNDS


def echoes(pause: float) -> list[float]:
    """Return the seconds from each message to its echo on a gRPC stream.

    Args:
        pause: seconds to wait before each message.
    """
    took: list[float] = []
    done = threading.Event()

    def session(replies: Iterator[bytes], _: object) -> Iterator[bytes]:
        for _round in range(TALKS * ROUNDS):
            time.sleep(pause)
            began = time.perf_counter()
            yield b"x" * 100
            next(replies)
            took.append(time.perf_counter() - began)
        done.set()

    with futures.ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        handler = grpc.stream_stream_rpc_method_handler(session, None, None)
        service = grpc.method_handlers_generic_handler("echo", {"Session": handler})
        server.add_generic_rpc_handlers((service,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with subprocess.Popen(
            [sys.executable, str(APPS / "echo.py"), f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL
        ) as process:
            done.wait(60)
            process.kill()
        server.stop(None)
    return took


def commits(out: Path) -> list[float]:
    """Return the seconds of small durable commits with the settings of the server's database."""
    took = []
    with sqlite3.connect(out / "probe.db", isolation_level=None) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE probe (text)")
        for _ in range(100):
            start = time.perf_counter()
            database.execute("INSERT INTO probe VALUES (?)", ("x" * 500,))
            took.append(time.perf_counter() - start)
            time.sleep(0.02)
    return took


def measure_rounds() -> bool:
    """Measure a round of a negotiation with each kind of program.

    Return whether all are within the budget.
    """
    good = True
    haggling = {"rounds": ROUNDS, "price": 100.0, "floor": 1.0}
    settings = {"quiet_s": 0.0, "settle_s": 0.0, "negotiation": haggling}
    print(f"a bare echo, ms:                   {figures(echoes(0.0))}")
    print(f"  after {1e3 * PAUSE_S:.0f} ms of silence, ms:      {figures(echoes(PAUSE_S))}")
    with cluster(1, 4, "--strategy", "fcfs", **settings) as (client, out):
        print(f"a durable commit alone, ms:        {figures(commits(out))}")
        for work in ("sleep", "numpy", "python"):
            first, further = rounds(client, out, work)
            print(f"one round, program in {work:6}, ms:   {figures(further)}")
            print(f"  the first of a talk, ms:         {figures(first)}")
            if work != "python":
                name = f"round p50, program in {work}"
                good &= verdict(name, 1e3 * statistics.median(further), BUDGET_MS, "ms")
    return good


# ------------------------------------------------------------------ many at once


@contextmanager
def many_coordinators(client: Client, out: Path, jobs: list[int], *words: str) -> Iterator[None]:
    """Within this context, run a process that answers the server for all of these jobs.

    It is started when each job has written its environment into a file.

    Args:
        client: the connection to the server.
        out: the folder of these files.
        jobs: the ids of the jobs.
        words: further arguments of `apps/many_coordinators.py`.
    """
    files = [out / f"{job}.env" for job in jobs]
    until(lambda: all(file.exists() for file in files), "the jobs' processes run")
    command = [sys.executable, str(APPS / "many_coordinators.py"), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdin is not None
            process.stdin.write("".join(f"{file}\n" for file in files))
            process.stdin.close()
            until(lambda: _registered(client, jobs), "all applications register")
            yield
        finally:
            process.kill()


def _registered(client: Client, jobs: list[int]) -> bool:
    return all(job.class_ == "malleable" for job in client.jobs(jobs))


def sleeper(client: Client, out: Path, sizes: str | int) -> int:
    """Submit a job whose processes sleep until they are ended; return its id.

    Its first process writes its environment into a file.
    """
    write = f'env -0 > "{out}/$$" && mv "{out}/$$" "{out}/$PLIANT_JOB.env"'
    script = f'[ "$PMI_RANK" = 0 ] && {write}; exec sleep 100000'
    return client.submit("/bin/sh", "-c", script, sizes=sizes, chdir=str(out), stdout="/dev/null")


def cycle(client: Client, out: Path, jobs: list[int]) -> tuple[float, float]:
    """Submit a job that needs a processor of each of ``jobs``; wait until all have answered.

    Returns:
        The seconds from the first offer to the last answer, and from the submission to the first
        offer.
    """
    before = len(of_kind(client, "offer.answered"))
    wanted = before + len(jobs)
    submitted = time.time()
    taker = sleeper(client, out, len(jobs))
    until(lambda: len(of_kind(client, "offer.answered")) >= wanted, "all answers", 2.0)
    history = client.history()
    sent = [event.time for event in history if event.kind == "offer.sent"][before:]
    answers = [event.time for event in history if event.kind == "offer.answered"][before:]
    client.cancel(taker)
    until(lambda: all(job.state == "RUNNING" for job in client.jobs(jobs)), "all is taken back")
    return answers[-1] - sent[0], sent[0] - submitted


def measure_cycles() -> bool:
    """Measure planning cycles with answers of many applications.

    Return whether they are within the budget.
    """
    settings = {"quiet_s": 0.1, "settle_s": 0.0, "offer_timeout_s": 60.0}
    slots = APPLICATIONS // 2
    with cluster(4, slots, "--strategy", "equipartition", **settings) as (client, out):
        jobs = [sleeper(client, out, "1-2") for _ in range(APPLICATIONS)]
        with many_coordinators(client, out, jobs):
            found = []
            for _ in range(CYCLES):
                time.sleep(0.5)  # longer than they are left alone
                found.append(cycle(client, out, jobs))
    took, plans = zip(*found, strict=True)
    print(f"{APPLICATIONS} applications, plan -> last answer, ms: {figures(took)}")
    print(f"  submission -> plan, ms:                {figures(plans)}")
    name = f"{APPLICATIONS} applications in one cycle, p50"
    return verdict(name, statistics.median(took), CYCLE_BUDGET_S, "s")


# ------------------------------------------------------------------ silence


def measure_silence() -> bool:
    """Measure starts of jobs while another application does not answer its offer.

    Return whether the starts are within the budget.
    """
    settings = {"offer_timeout_s": 600.0, "quiet_s": 600.0}
    with cluster(2, 4, "--strategy", "equipartition", **settings) as (client, out):
        silent = sleeper(client, out, "1-4")
        other = sleeper(client, out, 2)
        with many_coordinators(client, out, [silent], "silent"):
            before = first_instruction(client, out)
            waiting = sleeper(client, out, 3)
            until(lambda: bool(of_kind(client, "offer.sent", silent)), "the offer")
            client.cancel(other)
            client.wait(other)
            beside = first_instruction(client, out)
            if client.job(waiting).state != "PENDING" or of_kind(client, "offer.expired"):
                raise SystemExit("the talk was not open all the time")
    print(f"first instruction, no talk open, ms:  {figures(before)}")
    print(f"first instruction, silent talk, ms:   {figures(beside)}")
    later = 1e3 * (statistics.median(beside) - statistics.median(before))
    return verdict("a silent application delays others, p50", later, DELAY_MS, "ms")


def main(names: list[str]) -> int:
    """Run all three measurements, or the named ones; return 1 if one is over budget, else 0."""
    parts = {"rounds": measure_rounds, "cycles": measure_cycles, "silence": measure_silence}
    good = [parts[name]() for name in names or parts]
    return 0 if all(good) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
