"""Records of jobs, sums of them, and the Standard Workload Format."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pliant.client.accounting.job_usage import job_records, sums, swf_lines
from pliant.simulator.inputs.swf import read_swf

NOW = 10_000.0


def job(number: int, **values: Any) -> dict[str, Any]:
    known = {"id": number, "name": "sim", "user": "ann", "state": "COMPLETED", "submit": 100.0}
    return {"start": 110.0, "end": 170.0, "speedup": "linear", **known, **values}


def phase(number: int, start: float, end: float | None, processors: int) -> dict[str, Any]:
    return {
        **{"job": number, "run": 1, "start": start, "end": end, "processors": processors},
        "nodes": ["n1"],
    }


def test_a_record_adds_up_the_phases() -> None:
    phases = [phase(1, 110.0, 130.0, 2), phase(1, 130.0, 170.0, 4), phase(9, 0.0, 5.0, 1)]
    (record,) = job_records([job(1, speedup="amdahl:0.5")], phases, NOW)
    assert record["processor_s"] == 20 * 2 + 40 * 4
    assert (record["wait_s"], record["run_s"]) == (10.0, 60.0)
    # Amdahl: 1 / (0.5 + 0.5 / n) is 4/3 on 2 and 8/5 on 4 processors.
    assert record["efficiency"] == pytest.approx((20 * 4 / 3 + 40 * 8 / 5) / 200)
    assert [part["processors"] for part in record["phases"]] == [2, 4]


def test_jobs_that_wait_run_or_never_ran() -> None:
    jobs = [
        job(1, start=None, end=None, state="PENDING"),
        job(2, end=None, state="RUNNING"),
        job(3, start=None, end=150.0, state="CANCELLED"),
    ]
    waiting, running, cancelled = job_records(jobs, [phase(2, 110.0, None, 2)], NOW)
    assert waiting["wait_s"] == NOW - 100.0
    assert waiting["efficiency"] is None
    assert running["processor_s"] == 2 * (NOW - 110.0)
    assert cancelled["wait_s"] == 50.0


def test_sums_count_only_what_lies_between_two_times() -> None:
    jobs = [job(1), job(2, user="bob"), job(3, start=None)]
    records = job_records(jobs, [phase(1, 110.0, 170.0, 2), phase(2, 110.0, 170.0, 1)], NOW)
    ann, bob = sums(records, "user", 150.0, 160.0)
    assert (ann["user"], ann["jobs"], ann["processor_s"]) == ("ann", 2, 20.0)
    assert (bob["processor_s"], bob["mean_wait_s"]) == (10.0, 10.0)


def test_days_begin_at_midnight_of_this_host() -> None:
    midnight = time.mktime((2026, 3, 5, 0, 0, 0, 0, 0, -1))
    phases = [phase(1, midnight - 60.0, midnight + 30.0, 2)]
    records = job_records([job(1)], phases, midnight + 1000)
    first, second = sums(records, "day", None, midnight + 1000)
    assert (first["day"], first["processor_s"]) == ("2026-03-04", 120.0)
    assert (second["day"], second["processor_s"], second["jobs"]) == ("2026-03-05", 60.0, 1)


def test_the_simulator_reads_the_standard_workload_format(tmp_path: Path) -> None:
    jobs = [job(2, submit=120.0, user="bob"), job(1, estimate_s=90.0), job(3, end=None)]
    phases = [phase(1, 110.0, 140.0, 2), phase(1, 140.0, 170.0, 4), phase(2, 150.0, 170.0, 1)]
    (tmp_path / "log.swf").write_text("\n".join(swf_lines(job_records(jobs, phases, NOW), 8)))
    read = read_swf(tmp_path / "log.swf").jobs
    assert [(each.submit, each.requested) for each in read] == [(0.0, 3), (20.0, 1)]
    assert [each.work for each in read] == [180.0, 20.0]
    assert read[0].estimate_s == 90.0
