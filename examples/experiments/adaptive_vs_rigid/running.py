"""Run rows (workload and strategy) with real jobs, one row after the other.

Rows that have a stored result are not run again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pliant.client import Client, ClientError
from pliant.examples.experiments.adaptive_vs_rigid.cluster import cluster
from pliant.examples.experiments.adaptive_vs_rigid.experiment_rows import (
    PROCESSORS,
    Row,
    simulate_without_costs,
)
from pliant.examples.experiments.adaptive_vs_rigid.recording import (
    Tree,
    job_record,
    metrics,
    refusals,
)
from pliant.simulator.experiments.definition.definitions import ExperimentError
from pliant.simulator.experiments.running.measuring import duration
from pliant.simulator.inputs.workload import SimJob

#: The shortest iteration of a job on its largest size, in wall-clock seconds.
ITERATION_S = 0.2
_PROGRAM = "pliant.examples.experiments.adaptive_vs_rigid.synthetic_job"
#: A job that has not ended after this many times the expected time of the row has failed.
_PATIENCE, _MARGIN_S = 10.0, 900.0


def run_rows(rows: Sequence[Row], folder: Path) -> list[Tree]:
    """Return the results of rows; run and store the rows that have no stored result.

    A row is a run of a workload under a strategy.

    Args:
        rows: the rows.
        folder: the folder of the stored results, in which the cluster keeps its files, too.

    Raises:
        ExperimentError: the cluster or a job failed.
    """
    found: dict[str, Tree] = {}
    missing = []
    for row in rows:
        path = folder / row.file_name
        if path.exists():
            found[row.file_name] = json.loads(path.read_text(encoding="utf-8"))
        else:
            missing.append(row)
            _report_others(path, row)
    if found:
        _say(f"{len(found)} of {len(rows)} rows have a result")
    expected = {row.file_name: _expected_s(row) for row in missing}
    pace = 1.0  # The real time divided by the expected one, from the rows so far.
    spent = planned = 0.0
    for place, row in enumerate(missing, 1):
        left = sum(expected[each.file_name] for each in missing[place - 1 :]) * pace
        _say(f"row {place} of {len(missing)}: {row.label}; {duration(left)} left")
        began = time.monotonic()
        with cluster(folder, row.strategy) as outputs:
            result = _run(row, outputs, expected[row.file_name])
        spent += time.monotonic() - began
        planned += expected[row.file_name]
        pace = spent / planned
        _store(folder / row.file_name, result)
        found[row.file_name] = result
    return [found[row.file_name] for row in rows]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _report_others(path: Path, row: Row) -> None:
    """Print which stored results of a row cannot be used, because its definition or scale differs.

    Args:
        path: the file in which the result of the row will be stored.
        row: the run of a workload under a strategy.
    """
    stem = path.name.rpartition("-")[0]
    for other in sorted(path.parent.glob(f"{stem}-????????.json")):
        _say(f"not used: {other}: its workload, number of jobs or scale is not that of {row.label}")


def _expected_s(row: Row) -> float:
    """Return how many wall-clock seconds a run will take, from a simulation of its workload.

    Starts and resizes take no time in the simulation; 10 seconds are added for the cluster.
    """
    simulated = simulate_without_costs(row.spec, row.seed)
    return simulated["schedule_span_s"] * row.scale + 10.0


def _run(row: Row, outputs: Path, expected_s: float) -> Tree:
    jobs = sorted(row.jobs(), key=lambda job: job.submit)
    with Client() as client:
        begin = time.time() - jobs[0].submit * row.scale
        numbers = {}
        for job in jobs:
            time.sleep(max(0.0, begin + job.submit * row.scale - time.time()))
            numbers[job.id] = _submit(client, job, row.scale, outputs)
        deadline = time.time() + expected_s * _PATIENCE + _MARGIN_S
        records = []
        for place, job in enumerate(jobs, 1):
            try:
                client.wait(numbers[job.id], timeout_s=max(1.0, deadline - time.time()))
            except ClientError as error:
                raise ExperimentError(f"{row.label}: job {job.id}: {error}") from None
            output = outputs / f"{job.id}.out"
            records.append(job_record(client, numbers[job.id], job, begin, output))
            if place * 4 // len(jobs) > (place - 1) * 4 // len(jobs):
                _say(f"  {place} of {len(jobs)} jobs")
        _check(row, records, outputs)
    return {
        "row": {**asdict(row), "label": row.label, "fingerprint": row.fingerprint},
        "processors": PROCESSORS,
        "scale": row.scale,
        "wall_s": max(job["end_s"] for job in records) - min(job["submit_s"] for job in records),
        "load_average": os.getloadavg()[1],
        "metrics": metrics(records, PROCESSORS, row.scale),
        "refusals": refusals(records),
        "jobs": records,
    }


def _submit(client: Client, job: SimJob, scale: float, outputs: Path) -> int:
    work = job.work * scale
    steps = max(2, round(work / job.speedup(job.sizes.max) / ITERATION_S))
    words = ["--work", repr(work), "--steps", str(steps), "--speedup", str(job.speedup)]
    return client.submit(
        *(sys.executable, "-m", _PROGRAM, *words),
        name=f"job-{job.id}",
        sizes=str(job.sizes),
        speedup=str(job.speedup),
        estimate_s=None if job.estimate_s is None else max(0.001, job.estimate_s * scale),
        stdout=outputs / f"{job.id}.out",
        stderr=outputs / f"{job.id}.err",
        chdir=outputs,
    )


def _check(row: Row, records: Sequence[Tree], outputs: Path) -> None:
    """Check that all jobs of a run completed, because otherwise its metrics would mean nothing.

    Raises:
        ExperimentError: a job failed; the text has the last line of its errors.
    """
    for record in records:
        if record["state"] != "COMPLETED":
            errors = outputs / f"{record['id']}.err"
            lines = (
                errors.read_text(errors="replace").strip().splitlines() if errors.exists() else []
            )
            raise ExperimentError(
                f"{row.label}: job {record['id']} ended as {record['state']} "
                f"({record['reason']}): {''.join(lines[-1:])}"
            )


def _store(path: Path, result: Tree) -> None:
    """Write a result atomically, so that a killed run leaves no partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
