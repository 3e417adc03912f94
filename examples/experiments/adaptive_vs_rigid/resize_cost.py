"""Measure what shrinking and expanding cost with the molecular dynamics example (Kumar 2.4).

Job 1, the program ``md``, is resized between all processors and half of them several times. Then
job 2 arrives, which needs half of the processors: the strategy shrinks job 1, starts job 2, and
expands job 1 when job 2 has ended. Meanwhile, the processor time of all ranks is sampled.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pliant.client import Client, RequestError
from pliant.client.api import Event
from pliant.examples.experiments.adaptive_vs_rigid.cluster import cluster
from pliant.examples.experiments.adaptive_vs_rigid.processor_use import ProcessorUse, Sample
from pliant.examples.experiments.adaptive_vs_rigid.recording import Tree
from pliant.simulator.experiments.definition.definitions import ExperimentError

#: Unit cells along an edge of Kumar's problem: more than 400,000 atoms, 44.8 MB.
PUBLISHED_EDGE = 47
_MD = "pliant.examples.md"
_PATIENCE_S = 600.0
#: Seconds between a resize and the next event, so that samples show a steady state.
_STEADY_S = 5.0


def measure_cost(folder: Path, *, processors: int, edge: int, repeats: int) -> Tree:
    """Run both jobs on a cluster of one node and return the measurements as data for JSON.

    Args:
        folder: the folder of results, in which the cluster keeps its files.
        processors: the processors of the node, an even number.
        edge: the size of the problem of job 1.
        repeats: the number of times that job 1 is shrunk and expanded.

    Raises:
        ExperimentError: a job did not start, change its size or end within its time limit.
    """
    half = processors // 2
    with (
        cluster(folder, "max-fit", nodes=1, slots=processors) as outputs,
        Client() as client,
        ProcessorUse(folder / "cluster" / "state") as use,
    ):
        first = _submit(client, outputs, edge, f"{half}-{processors}", steps=1_000_000)
        _wait(lambda: "application.registered" in _kinds(client, first), "job 1 to start")
        time.sleep(_STEADY_S)
        for size in [half, processors] * repeats:
            _resize(client, first, size)
            time.sleep(_STEADY_S / 2)
        client.resize(first, 0)
        _say("job 2 arrives")
        second = _submit(client, outputs, 8, str(half), steps=200)
        job = client.wait(second, timeout_s=_PATIENCE_S)
        if job.state != "COMPLETED":
            raise ExperimentError(f"job 2 ended as {job.state}: {job.reason}")
        _wait(lambda: client.job(first).processors == processors, "job 1 to expand")
        time.sleep(_STEADY_S)
        history, usage = client.history(first), client.usage(first)
        phases = [(1, phase) for phase in usage.phases]
        phases += [(2, phase) for phase in client.usage(second).phases]
        client.cancel(first)
    begin = use.samples[0].at
    shrunk = shrunk_times(history)
    return {
        "processors": processors,
        "edge": edge,
        "atoms": 4 * edge**3,
        "resizes": resizes_of(history),
        "residual": residual_load(use.samples, first, half, shrunk),
        "shrunk": [[moment - begin for moment in each] for each in shrunk],
        "phases": [
            {
                "job": job,
                "start_s": phase.start - begin,
                "end_s": None if phase.end is None else phase.end - begin,
                "processors": phase.processors,
            }
            for job, phase in phases
        ],
        "use": _use(use.samples, {first: 1, second: 2}, begin),
        "vacated": _vacated(use.samples, first, half, begin),
        "load_average": os.getloadavg()[1],
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _submit(client: Client, outputs: Path, edge: int, sizes: str, *, steps: int) -> int:
    words = ["-m", _MD, "--edge", str(edge), "--steps", str(steps), "--save-every", str(steps)]
    return client.submit(
        sys.executable, *words, sizes=sizes, grow_if="always", chdir=outputs, name="md"
    )


def _kinds(client: Client, number: int) -> list[str]:
    job = client.job(number)
    if job.final:
        raise ExperimentError(f"job {number} ended as {job.state}: {job.reason}")
    return [event.kind for event in client.history(number)]


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise ExperimentError(f"waited {_PATIENCE_S:g} s in vain for {what}")
        time.sleep(0.1)


def _resize(client: Client, number: int, size: int) -> None:
    """Resize a job; repeat the request if the job is busy, as at the end of an earlier resize."""
    _say(f"job 1: {size} processors")
    deadline = time.monotonic() + _PATIENCE_S
    while client.job(number).processors != size:
        if time.monotonic() > deadline:
            raise ExperimentError(f"job 1 did not change to {size} processors")
        try:
            client.resize(number, size)
        except RequestError:
            pass  # A resize is in progress.
        time.sleep(0.5)


def shrunk_times(history: Sequence[Event]) -> list[tuple[float, float, float]]:
    """Return the periods in which a job was shrunk, each as (begin, last rank exited, end).

    A period ends with the offer of the next growth, because the processes of the growth then
    start on the vacated processors.
    """
    found = []
    start = released = None
    for event in history:
        if event.kind == "job.resized" and event.data["to"] < event.data["from"]:
            start = event.time
        elif event.kind == "processors.released" and event.data.get("cause") == "resize":
            released = event.time
        elif event.kind == "offer.sent" and event.data["size"] > event.data["from"]:
            if start is not None and released is not None:
                found.append((start, released, event.time))
            start = released = None
    return found


def resizes_of(history: Sequence[Event]) -> list[Tree]:
    """Return the resizes of a job with their durations, in seconds from the offer on."""
    found: list[Tree] = []
    offered: dict[Any, float] = {}
    begin = 0.0
    for event in history:
        if event.kind == "offer.sent":
            offered.setdefault(event.data["resize"], event.time)
        elif event.kind == "job.resized":
            begin = offered.get(event.data["resize"], event.time)
            found.append(
                {
                    "from": event.data["from"],
                    "to": event.data["to"],
                    "pause_s": event.data["seconds"]["total"],
                    "done_s": event.time - begin,
                    "released_s": None,
                    "bytes_moved": event.data["bytes_moved"],
                }
            )
        elif event.kind == "processors.released" and event.data.get("cause") == "resize":
            found[-1]["released_s"] = event.time - begin
    return found


def _use(samples: Sequence[Sample], jobs: dict[int, int], begin: float) -> list[Tree]:
    """Return, for each interval between samples, how many processors each job used on average.

    Args:
        samples: the processor time of all ranks over time.
        jobs: the number of each job in the results, by its number at the server.
        begin: the time that counts as 0, in seconds since the epoch.
    """
    found = []
    for before, after in pairwise(samples):
        entry: Tree = {"at_s": after.at - begin}
        for number, name in jobs.items():
            spent = sum(
                seconds - before.spent_s.get(place, 0.0)
                for place, seconds in after.spent_s.items()
                if place[0] == number
            )
            entry[f"job_{name}"] = spent / (after.at - before.at)
        found.append(entry)
    return found


def _vacated(samples: Sequence[Sample], job: int, half: int, begin: float) -> list[Tree]:
    """Return how much a job used the processors that it vacates when it is shrunk to half.

    These are the processors from number ``half`` on. There is an entry for each interval between
    samples, with its times since ``begin``, the load in percent of these processors, and the number
    of ranks of the job that were alive there.
    """
    found = []
    for before, after in pairwise(samples):
        spent = sum(
            seconds - before.spent_s.get(place, 0.0)
            for place, seconds in after.spent_s.items()
            if place[0] == job and place[1] >= half
        )
        ranks = sum(place[0] == job and place[1] >= half for place in after.living)
        percent = 100 * spent / (after.at - before.at) / half
        entry = {"since_s": before.at - begin, "at_s": after.at - begin}
        found.append({**entry, "percent": percent, "ranks": ranks})
    return found


def residual_load(
    samples: Sequence[Sample], job: int, half: int, shrunk: Sequence[tuple[float, float, float]]
) -> Tree:
    """Return the load in percent of a shrunk job on the processors that it has vacated.

    Intervals that begin before the exit of the last leaving rank are averaged separately.

    Args:
        samples: the processor time of all ranks over time.
        job: the number of the job.
        half: the number of processors that it has when it is shrunk, and vacates.
        shrunk: the periods in which it was shrunk, as (begin, last rank exited, end).
    """
    steady: list[float] = []
    exiting: list[float] = []
    ranks = 0
    for entry in _vacated(samples, job, half, 0.0):
        for start, released, end in shrunk:
            if released < entry["since_s"] and entry["at_s"] < end:
                steady.append(entry["percent"])
                ranks = max(ranks, entry["ranks"])
            elif start < entry["at_s"] and entry["since_s"] <= released:
                exiting.append(entry["percent"])
    return {
        "exiting_mean_percent": statistics.fmean(exiting) if exiting else None,
        "steady_mean_percent": statistics.fmean(steady) if steady else None,
        "steady_highest_percent": max(steady, default=None),
        "steady_ranks": ranks,
        "samples": len(steady),
    }
