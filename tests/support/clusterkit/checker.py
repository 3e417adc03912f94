"""The invariants that hold after whatever happened, judged by the evidence alone.

I1 an acknowledged job exists, once; I2 no processor is in two allocations, and nodes run what the
database says; I3 one end, with its true code; I4 no process of a job that has ended, on no other
processor than its own; I5 the database is whole and every history is a legal path; I6 the nodes'
processors add up, and a spare node that takes work stands in for a lost one, alone; I8 processes
run as who submitted them; I9 the epochs of a run and generations only grow.
(I7, a canary completes, and I10, daemons do not swell, need the cluster: `afterwards` sees to all.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import combinations, pairwise
from pathlib import Path

from clusterkit.evidence import Evidence, JobRow, gather
from pliant.core.model.lifecycle import ACTIVE_STATES, FINAL_STATES, TRANSITIONS, JobState
from testkit.waiting import wait_until

#: Epochs are told with these.
_EPOCHS = ("job.started", "job.resized")


def violations(found: Evidence, acknowledged: Collection[tuple[int, str]] = ()) -> list[str]:
    """Return what does not hold, each with the number of its invariant; empty: all does.

    Args:
        found: the evidence.
        acknowledged: the numbers that users were told for jobs of theirs, and how they call these;
            there is no other job of such a name.
    """
    return [
        *_acknowledged(found, acknowledged),
        *_allocations(found),
        *_ends(found),
        *_processes(found),
        *_histories(found),
        *_nodes(found),
        *_numbers(found),
    ]


def settled(state: Path, acknowledged: Collection[tuple[int, str]] = ()) -> Evidence:
    """Wait until everything holds in a cluster that comes to rest; fail with what does not."""
    last: list[Evidence] = []

    def holds() -> bool:
        last[:] = [gather(state)]
        return not violations(last[0], acknowledged)

    try:
        wait_until(holds, every=0.1, what="all invariants to hold")
    except AssertionError:
        text = "\n  ".join(violations(last[0], acknowledged))
        raise AssertionError(f"invariants do not hold:\n  {text}") from None
    return last[0]


def _acknowledged(found: Evidence, acknowledged: Collection[tuple[int, str]]) -> Iterator[str]:
    keys = Counter(job.key for job in found.jobs.values() if job.key)
    yield from (f"I1: {n} jobs have the key {key}" for key, n in keys.items() if n > 1)
    names = Counter(job.name for job in found.jobs.values())
    for number, name in acknowledged:
        job = found.jobs.get(number)
        if job is None:
            yield f"I1: job {number}, {name}, was acknowledged and is lost"
        elif job.name != name:
            yield f"I1: job {number} was acknowledged for {name} and is {job.name}"
        if names[name] > 1:
            yield f"I1: there are {names[name]} jobs {name}, {number} was acknowledged"


def _allocations(found: Evidence) -> Iterator[str]:
    holders = [(job.id, job.held) for job in found.jobs.values() if job.held]
    for (one, here), (other, there) in combinations(holders, 2):
        if here & there:
            yield f"I2: jobs {one} and {other} both hold processors {sorted(here & there)}"
    for job in found.jobs.values():
        if job.held and job.state not in ACTIVE_STATES:
            yield f"I2: job {job.id} is {job.state} and holds {sorted(job.held)}"
    for world in found.worlds:
        owner = found.jobs.get(world.job)
        strange = world.live - (owner.held if owner and owner.run == world.run else frozenset())
        if strange:
            yield f"I2: {world.name} runs on {sorted(strange)} of {world.node}, not its job's"
    for first, second in combinations(found.worlds, 2):
        if both := first.live & second.live:
            yield f"I2: {first.name} and {second.name} both run on {sorted(both)}"


def _ends(found: Evidence) -> Iterator[str]:
    ends = Counter(event.job for event in found.events if event.kind == "job.ended")
    failed = _failed(found)
    for job in found.jobs.values():
        final, told = job.state in FINAL_STATES, ends[job.id]
        if told != final:
            yield f"I3: job {job.id} is {job.state} and its end was noted {told} times"
        by_place = found.codes.get((job.id, job.run), {})
        codes = [by_place.get(place, 0) for place in job.allocation]  # a lost node told nothing
        if job.state == "COMPLETED" and (job.exit_code != 0 or any(code != 0 for code in codes)):
            yield f"I3: job {job.id} is COMPLETED with {job.exit_code}, its processes with {codes}"
        if job.state == "FAILED" and not job.record["reason"]:
            yield f"I3: job {job.id} is FAILED and nobody says why"
        if job.state == "FAILED" and job.id in failed and not _of_its_processes(job, by_place):
            yield f"I3: job {job.id} is FAILED with {job.exit_code}, its processes with {codes}"


def _failed(found: Evidence) -> set[int]:
    """The jobs that have failed, in their last run, for what a process of theirs did."""
    failed = set[int]()
    for event in found.events:
        if event.job is not None and event.kind == "job.queued":
            failed.discard(event.job)
        elif event.job is not None and event.kind == "job.failed":
            failed.add(event.job)
    return failed


def _of_its_processes(job: JobRow, by_place: Mapping[int, int | None]) -> bool:
    """Whether the code of a job may be that of a process: not if all are known, and others.

    It is the highest of those that were told first. In which order they were is not written down:
    processes that are told to end for it may have ended with higher ones. A signal is no code.
    """
    codes = [by_place.get(place) for place in job.allocation]
    return None in codes or (job.exit_code != 0 and job.exit_code in codes)


def _processes(found: Evidence) -> Iterator[str]:
    for process in found.processes:
        who = f"process {process.pid} of job {process.job}, run {process.run}"
        job = found.jobs.get(process.job)
        if job is None:
            yield f"I4: {who}: there is no such job"
            continue
        if job.state not in ACTIVE_STATES or job.run != process.run:
            yield f"I4: {who}: the job is {job.state} in run {job.run}"
        elif process.processor not in job.held:
            yield f"I4: {who} is on processor {process.processor}, of {sorted(job.held)}"
        if process.uid != job.uid:
            yield f"I8: {who} runs as user {process.uid}, it is of user {job.uid}"


def _histories(found: Evidence) -> Iterator[str]:
    if found.integrity != "ok":
        yield f"I5: the database: {found.integrity}"
    for job in found.jobs.values():
        path = job.path
        if path[-1:] != [job.state]:
            yield f"I5: job {job.id} is {job.state}, its story ends with {path[-1:]}"
        for before, after in pairwise(path):
            if (JobState(before), JobState(after)) not in TRANSITIONS:
                yield f"I5: job {job.id} went from {before} to {after}"


def _nodes(found: Evidence) -> Iterator[str]:
    every: set[int] = set()
    for node in found.nodes.values():
        if every & node.processors:
            yield f"I6: node {node.name} shares processors {sorted(every & node.processors)}"
        every |= node.processors
        other = found.nodes.get(node.stands_in)
        if node.stands_in and (other is None or other.state != "LOST" or node.state == "SPARE"):
            yield f"I6: node {node.name} is {node.state} and stands in for {node.stands_in}"
    replaced = Counter(node.stands_in for node in found.nodes.values() if node.stands_in)
    yield from (f"I6: {n} nodes stand in for {name}" for name, n in replaced.items() if n > 1)
    for job in found.jobs.values():
        if job.held - every:
            yield f"I6: job {job.id} holds {sorted(job.held - every)}, which no node has"


def _numbers(found: Evidence) -> Iterator[str]:
    last: dict[int, int] = {}
    for event in found.events:
        if event.kind == "job.queued" and event.job is not None:
            last.pop(event.job, None)  # another run of it
        if event.kind in _EPOCHS and event.job is not None:
            before, epoch = last.get(event.job, 0), event.data["epoch"]
            if epoch <= before:
                yield f"I9: job {event.job} came to epoch {epoch} after {before}"
            last[event.job] = epoch
    for name, generation in found.generations.items():
        if generation > found.generation:
            yield f"I9: node {name} has obeyed generation {generation}, ours is {found.generation}"
