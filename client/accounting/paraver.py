"""Jobs over time as a trace of Paraver: states and sizes of each job.

The trace has one application with one thread for each job. Its state is 2 while the job waits and 1
while the job has processors. Events of type `PROCESSORS` give the number of processors, and one of
type `END` gives the final state. The format is described in "Paraver Trace Format" (Barcelona
Supercomputing Center).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pliant.client.terminal.tables import clean

RUNNING, WAITING = 1, 2
PROCESSORS, END = 90_000_001, 90_000_002
_END_STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "REJECTED")
_NS = 1_000_000_000

Record = Mapping[str, Any]


def paraver_files(
    records: Sequence[Record], nodes: Sequence[tuple[str, int]], now: float
) -> dict[str, str]:
    """Return the three files of a trace by their ending: ``prv``, ``pcf`` and ``row``.

    Args:
        records: the jobs with their phases, the periods in which a job had the same processors,
            as `job_usage.job_records` returns them.
        nodes: names of the nodes and their numbers of processors.
        now: the time at which a phase that continues is cut off, in seconds since the epoch.
    """
    jobs = [record for record in records if record["phases"]]
    places = [*dict.fromkeys([*(name for name, _ in nodes), *_names(jobs)])]
    slots = {**dict.fromkeys(places, 1), **dict(nodes)}
    begin = min((record["submit"] for record in jobs), default=now)
    end = max((_end(record, now) for record in jobs), default=now)
    lines = [_header(jobs, places, slots, begin, end)]
    cpus = {name: 1 + sum(slots[each] for each in places[:n]) for n, name in enumerate(places)}
    found = sorted(line for job in enumerate(jobs, 1) for line in _lines(*job, cpus, begin, now))
    lines += [text for _, text in found]
    return {
        "prv": "\n".join(lines) + "\n",
        "pcf": _CONFIGURATION,
        "row": _rows(jobs, places, slots),
    }


def _names(jobs: Sequence[Record]) -> Iterator[str]:
    return (name for job in jobs for phase in job["phases"] for name in phase["nodes"])


def _end(record: Record, now: float) -> float:
    return max(now if phase["end"] is None else phase["end"] for phase in record["phases"])


def _header(
    jobs: Sequence[Record],
    places: Sequence[str],
    slots: Mapping[str, int],
    begin: float,
    end: float,
) -> str:
    """Return the first line of the trace: date, length in ns, processors of each node, and jobs.

    Args:
        jobs: the jobs of the trace.
        places: the names of the nodes, in the order of the trace.
        slots: the number of processors of each node.
        begin: the begin of the trace, in seconds since the epoch.
        end: its end, in seconds since the epoch.
    """
    date = time.strftime("%d/%m/%y at %H:%M", time.localtime(begin))
    cpus = ",".join(str(slots[name]) for name in places)
    applications = "".join(f":1(1:{places.index(_first_node(job)) + 1})" for job in jobs)
    length = round((end - begin) * _NS)
    return f"#Paraver ({date}):{length}_ns:{len(places)}({cpus}):{len(jobs)}{applications}"


def _first_node(record: Record) -> str:
    """Return the name of the first node in the list of nodes on which a job started."""
    return str(record["phases"][0]["nodes"][0])


def _lines(
    number: int, record: Record, cpus: Mapping[str, int], begin: float, now: float
) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the lines of a job for the file ``prv``, each with a key by which to sort all lines.

    All lines are shown on one processor: the first one of the job's first node.

    Args:
        number: the number of the job in the trace, from 1.
        record: the job with its phases, the periods in which it had the same processors.
        cpus: the number of the first processor of each node.
        begin: the begin of the trace, in seconds since the epoch.
        now: the time at which a phase that continues is cut off, in seconds since the epoch.
    """
    where = f"{cpus[_first_node(record)]}:{number}:1:1"

    def state(start: float, end: float, kind: int) -> tuple[tuple[int, int], str]:
        first, last = round((start - begin) * _NS), round((end - begin) * _NS)
        return (first, 1), f"1:{where}:{first}:{last}:{kind}"

    def event(at: float, kind: int, value: int) -> tuple[tuple[int, int], str]:
        moment = round((at - begin) * _NS)
        return (moment, 2), f"2:{where}:{moment}:{kind}:{value}"

    before = record["submit"]
    for phase in record["phases"]:
        end = now if phase["end"] is None else phase["end"]
        if phase["start"] > before:
            yield event(before, PROCESSORS, 0)
            yield state(before, phase["start"], WAITING)
        yield state(phase["start"], end, RUNNING)
        yield event(phase["start"], PROCESSORS, phase["processors"])
        before = end
    yield event(before, PROCESSORS, 0)
    if record["state"] in _END_STATES:
        yield event(before, END, _END_STATES.index(record["state"]) + 1)


def _rows(jobs: Sequence[Record], places: Sequence[str], slots: Mapping[str, int]) -> str:
    """Return the content of the file ``row``: the names of all processors, nodes and jobs.

    ``places`` are the names of the nodes, and ``slots`` has the number of processors of each node.
    """
    names = [clean(f"{job['id']} {job['name'] or ''}".strip()) for job in jobs]
    cpus = [f"{name}.{slot}" for name in places for slot in range(slots[name])]
    levels = {"CPU": cpus, "NODE": places, "APPL": names, "TASK": names, "THREAD": names}
    return "\n".join(
        line
        for level, labels in levels.items()
        for line in (f"LEVEL {level} SIZE {len(labels)}", *labels, "")
    )


_CONFIGURATION = f"""DEFAULT_OPTIONS

LEVEL               THREAD
UNITS               NANOSEC
LOOK_BACK           100
SPEED               1
FLAG_ICONS          ENABLED
NUM_OF_STATE_COLORS 1000
YMAX_SCALE          37

STATES
0    No processors
{RUNNING}    Has processors
{WAITING}    Waits

EVENT_TYPE
0    {PROCESSORS}    Processors

EVENT_TYPE
0    {END}    End of the job
VALUES
{"".join(f"{place}    {name}{chr(10)}" for place, name in enumerate(_END_STATES, 1))}"""
