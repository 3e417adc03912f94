"""Attributes of jobs that a log does not have: sizes, kinds, costs, contracts and priorities.

The Standard Workload Format has no fields for them, so they are in a CSV file, the side file, whose
first line names the columns::

    job,kind,pmin,pmax,preferred,adaptation_cost,negotiation_delay
    17,malleable,2,64,16,0.002,0.0015
    18,moldable,4,8,,,

``job`` is the number in the log. All other columns and values are optional. ``kind`` is rigid,
moldable (the scheduler chooses the size, once) or malleable (the default). ``adaptation_cost`` is
in seconds per changed processor, ``negotiation_delay`` in seconds per negotiation. ``deadline`` is
in seconds from the job's submission. ``profit`` is a profit function as in ``jobsub --profit``,
such as ``1000`` or ``1000:soft=0.25:penalty=50``; a profit needs a deadline. ``priority`` is a
whole number; strategies that order the queue by priority start jobs with higher ones first.
``memory`` (such as ``4G``) and ``gpus`` are what each process needs on its node, ``constraint`` is
as in ``jobsub --constraint``.

A job with only a contract or a priority keeps its sizes and kind. Lines that start with ``;`` or
``#`` are comments. Jobs that the workload does not have are ignored, so that one file can be used
for any part of a log.
"""

import csv
import dataclasses
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

from pliant.core.model.jobs import MAX_PRIORITY, MIN_PRIORITY
from pliant.core.values.node_needs import GPU, MEMORY, NodeNeeds, parse_memory
from pliant.core.values.node_property_constraint import Constraint
from pliant.core.values.profit_contract import PROFIT_FORM, Contract, parse_profit
from pliant.core.values.sizes import Sizes
from pliant.simulator.inputs.open_regular_file import open_regular
from pliant.simulator.inputs.workload import SimJob, Workload, WorkloadError, error_at

COLUMNS = (
    *("job", "kind", "pmin", "pmax", "preferred", "adaptation_cost", "negotiation_delay"),
    *("deadline", "profit", "priority", "memory", "gpus", "constraint"),
)
KINDS = ("rigid", "moldable", "malleable")


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of one job that a line of a side file (a CSV file with job options) states."""

    line: int
    job: int
    #: Empty if the line has only a contract or a priority.
    kind: str = "malleable"
    pmin: int | None = None
    pmax: int | None = None
    preferred: int | None = None
    adaptation_cost: float | None = None
    negotiation_delay: float | None = None
    contract: Contract | None = None
    #: None to keep the priority of the workload.
    priority: int | None = None
    #: None to keep those of the workload.
    needs: NodeNeeds | None = None


def read_side_file(path: str | Path) -> list[Attributes]:
    """Read the attributes of all jobs in a side file (a CSV file with job options).

    Raises:
        WorkloadError: the file cannot be read or is invalid. The message names line and column.
    """
    try:
        with TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            return list(_attributes(path, file.read().splitlines()))
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise WorkloadError(f"{path}: not a CSV file: it is not UTF-8 text") from None


def merge_side_file(workload: Workload, path: str | Path) -> Workload:
    """Return the workload with the attributes that a side file (a CSV file) states for its jobs.

    Raises:
        WorkloadError: the file cannot be read, is invalid, or has none of the jobs.
    """
    found = {item.job: item for item in read_side_file(path)}
    jobs = []
    for job in workload.jobs:
        item = found.get(job.id)
        jobs.append(job if item is None else _merged(path, job, item, workload.processors))
    if found and found.keys().isdisjoint(job.id for job in workload.jobs):
        name = workload.name or "the workload"
        raise WorkloadError(f"{path}: none of its {len(found)} jobs is in {name}")
    return workload.with_jobs(jobs)


def _attributes(path: str | Path, lines: list[str]) -> Iterator[Attributes]:
    numbered = [
        (number, next(csv.reader([text])))
        for number, text in enumerate(lines, 1)
        if text.strip() and text.lstrip()[0] not in ";#"
    ]
    if not numbered:
        raise WorkloadError(f"{path}: the file is empty; its first line names the columns")
    columns = _columns(path, *numbered[0])
    seen: dict[int, int] = {}
    for line, values in numbered[1:]:
        if len(values) != len(columns):
            raise error_at(path, line, f"expected {len(columns)} values, not {len(values)}")
        item = _Row(path, line, dict(zip(columns, map(str.strip, values), strict=True))).read()
        first = seen.setdefault(item.job, line)
        if first != line:
            raise error_at(path, line, f"job: {item.job} stands in line {first}, too")
        yield item


def _columns(path: str | Path, line: int, values: list[str]) -> list[str]:
    names = [value.strip().lower() for value in values]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        known = ", ".join(COLUMNS)
        raise error_at(path, line, f"expected the names of columns ({known}), not {unknown[0]!r}")
    if len(set(names)) != len(names) or "job" not in names:
        raise error_at(path, line, "expected a column `job`, and no column twice")
    return names


@dataclass(frozen=True, slots=True)
class _Row:
    """The values in one line of a side file (a CSV file with job options), and checks of them."""

    path: str | Path
    line: int
    values: dict[str, str]

    def read(self) -> Attributes:
        """Return the attributes of a job that this row names."""
        job = self._whole("job", 0)
        if job is None:
            raise self.error("job", "a job number")
        contract, priority = self._contract(), self._priority()
        shape = any(self.values.get(name) for name in COLUMNS[1:7])
        needs = self._needs()
        only_other = contract is not None or priority is not None or needs is not None
        default = "malleable" if shape or not only_other else ""
        kind = self.values.get("kind", "").lower() or default
        if kind and kind not in KINDS:
            raise self.error("kind", f"one of {', '.join(KINDS)}")
        pmin, pmax = self._whole("pmin", 1), self._whole("pmax", 1)
        if pmin is not None and pmax is not None and pmin > pmax:
            raise self.error("pmin", f"at most pmax ({pmax})")
        preferred = self._whole("preferred", 1)
        cost, delay = self._seconds("adaptation_cost"), self._seconds("negotiation_delay")
        return Attributes(
            self.line, job, kind, pmin, pmax, preferred, cost, delay, contract, priority, needs
        )

    def _needs(self) -> NodeNeeds | None:
        memory, constraint = self.values.get("memory", ""), self.values.get("constraint", "")
        gpus = self._whole("gpus", 1)
        try:
            amounts = [(GPU, gpus)] if gpus else []
            amounts += [(MEMORY, parse_memory(memory))] if memory else []
            needs = NodeNeeds(tuple(amounts), Constraint(constraint) if constraint else None)
        except ValueError as error:
            raise error_at(self.path, self.line, str(error)) from None
        return needs or None

    def _contract(self) -> Contract | None:
        deadline, profit = self._seconds("deadline"), self.values.get("profit", "")
        if deadline is None:
            if profit:
                raise self.error("deadline", "seconds, because the job has a profit")
            return None
        try:
            return parse_profit(profit, deadline)
        except ValueError:
            raise self.error("profit", PROFIT_FORM) from None

    def _priority(self) -> int | None:
        text = self.values.get("priority", "")
        if not text:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise self.error("priority", "a whole number")
        if not MIN_PRIORITY <= int(text) <= MAX_PRIORITY:
            raise self.error("priority", f"{MIN_PRIORITY} to {MAX_PRIORITY}")
        return int(text)

    def _whole(self, column: str, least: int) -> int | None:
        text = self.values.get(column, "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise self.error(column, f"a whole number >= {least}")
        return int(text)

    def _seconds(self, column: str) -> float | None:
        text = self.values.get(column, "")
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise self.error(column, "seconds >= 0")
        return value

    def error(self, column: str, expected: str) -> WorkloadError:
        """Return an error: the value in ``column`` is not what is ``expected``."""
        text = self.values.get(column, "")
        return error_at(self.path, self.line, f"{column}: expected {expected}, not {text!r}")


def _merged(path: str | Path, job: SimJob, item: Attributes, processors: int | None) -> SimJob:
    if item.contract is not None:
        job = dataclasses.replace(job, contract=item.contract)
    if item.priority is not None:
        job = dataclasses.replace(job, priority=item.priority)
    if item.needs is not None:
        job = dataclasses.replace(job, needs=item.needs)
    if not item.kind:
        return job
    low = job.requested if item.pmin is None else item.pmin
    high = max(job.requested, low) if item.pmax is None else item.pmax
    low = min(low, high) if item.pmin is None else low

    def wrong(column: str, text: str) -> WorkloadError:
        return error_at(path, item.line, f"{column}: job {job.id}: {text}")

    if item.kind == "rigid" and low != high:
        raise wrong("kind", f"a rigid job has one size, not {low}-{high}")
    if processors is not None and low > processors:
        raise wrong("pmin", f"expected at most the machine's {processors} processors, not {low}")
    sizes = Sizes(range(low, high + 1))
    if item.preferred is not None:
        if item.preferred not in sizes:
            raise wrong("preferred", f"expected one of {sizes}, not {item.preferred}")
        sizes = sizes.prefer(item.preferred)
    return dataclasses.replace(
        job,
        sizes=sizes,
        malleable=item.kind == "malleable",
        adaptation_cost=item.adaptation_cost,
        negotiation_delay=item.negotiation_delay,
    )
