"""Traces of Paraver: the files agree with each other and with the phases of the jobs."""

from __future__ import annotations

import re
from typing import Any

from pliant.client.accounting.paraver import END, PROCESSORS, RUNNING, WAITING, paraver_files

NOW = 1100.0
_NS = 10**9


def phase(start: float, end: float | None, processors: int, *nodes: str) -> dict[str, Any]:
    return {"start": start, "end": end, "processors": processors, "nodes": list(nodes)}


def record(number: int, submit: float, state: str, *phases: dict[str, Any]) -> dict[str, Any]:
    name = f"job{number}"
    return {"id": number, "name": name, "submit": submit, "state": state, "phases": list(phases)}


JOBS = [
    record(7, 1000.0, "COMPLETED", phase(1010, 1020, 2, "n1"), phase(1020, 1040, 4, "n1", "n2")),
    record(8, 1005.0, "PENDING"),
    record(9, 1010.0, "RUNNING", phase(1030, None, 1, "n2")),
]
FILES = paraver_files(JOBS, [("n1", 2), ("n2", 2)], NOW)
HEAD, *LINES = FILES["prv"].splitlines()


def of_job(application: int, kind: int) -> list[list[int]]:
    rows = [[int(field) for field in line.split(":")] for line in LINES]
    return [row[5:] for row in rows if row[0] == kind and row[2] == application]


def test_the_head_names_nodes_and_jobs() -> None:
    match = re.fullmatch(r"#Paraver \(\d\d/\d\d/\d\d at \d\d:\d\d\):(\d+)_ns:(.*)", HEAD)
    assert match is not None
    assert int(match[1]) == 100 * _NS
    assert match[2] == "2(2,2):2:1(1:1):1(1:2)"


def test_states_cover_the_life_of_a_job() -> None:
    assert of_job(1, 1) == [
        [0, 10 * _NS, WAITING],
        [10 * _NS, 20 * _NS, RUNNING],
        [20 * _NS, 40 * _NS, RUNNING],
    ]
    assert of_job(2, 1) == [[10 * _NS, 30 * _NS, WAITING], [30 * _NS, 100 * _NS, RUNNING]]


def test_events_give_the_sizes_and_the_end() -> None:
    assert of_job(1, 2) == [
        [0, PROCESSORS, 0],
        [10 * _NS, PROCESSORS, 2],
        [20 * _NS, PROCESSORS, 4],
        [40 * _NS, PROCESSORS, 0],
        [40 * _NS, END, 1],
    ]


def test_records_name_processors_of_the_job_s_node() -> None:
    cpus = {tuple(line.split(":")[1:3]) for line in LINES}
    assert cpus == {("1", "1"), ("3", "2")}


def test_records_are_in_order_of_time() -> None:
    times = [int(line.split(":")[5]) for line in LINES]
    assert times == sorted(times)


def test_the_labels_fit_the_levels() -> None:
    for block in FILES["row"].strip().split("\n\n"):
        head, *labels = block.splitlines()
        assert int(head.split()[-1]) == len(labels)
    assert "7 job7" in FILES["row"]
    assert str(PROCESSORS) in FILES["pcf"]
    assert "1    COMPLETED" in FILES["pcf"]


def test_a_trace_without_jobs() -> None:
    head = paraver_files([], [("n1", 2)], NOW)["prv"]
    assert head.strip().endswith(":0_ns:1(2):0")
