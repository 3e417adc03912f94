"""Logs in the Standard Workload Format, plain or compressed by gzip.

A record is used if it has a run time >= 0 and asks for at least one processor and for at most as
many as the machine has. Its processors are the allocated ones (field 5) if there are any, otherwise
the requested ones (field 8). Its estimate is the requested time (field 9) if positive, otherwise
the run time, and at least one second. Records are ordered by submit time, then by job number.

Archived logs are old and varied: lines may be short, numbers may have fractions, and comments may
be anywhere. A record that is not used is kept with its line and the reason. Reports count skipped
records by kinds of reasons.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pliant.core.values.node_needs import MEMORY, NodeNeeds
from pliant.core.values.sizes import Sizes
from pliant.simulator.inputs.open_regular_file import open_regular
from pliant.simulator.inputs.workload import (
    TOO_WIDE,
    SimJob,
    Skipped,
    Workload,
    WorkloadError,
    error_at,
)

_LABEL = re.compile(r";+\s*([A-Za-z]\w*)\s*:\s*(.*)")
_FIRST_NUMBER = re.compile(r"\d+", re.ASCII)
_GZIP = b"\x1f\x8b"
_FIELDS = 18
#: A line with fewer fields than number, submit, wait, run time and processors is not used.
_MIN_FIELDS = 5
#: A longer line is not a record, and must not be read into memory as a whole.
_MAX_LINE_BYTES = 1 << 16
#: The places of the user and of the group in a record.
_USER, _GROUP = 11, 12
#: Larger numbers are taken for damaged data.
_MAX_NUMBER = 1e15
_NAMES = {
    0: "job number",
    1: "submit time",
    3: "run time",
    4: "processors",
    7: "requested processors",
    8: "requested time",
}


class _UnusableError(ValueError):
    """A line of a log cannot be used. The error has the reason and the kind of reason."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class _Record(NamedTuple):
    """A usable line of a log; sorting compares the fields in this order."""

    submit: float
    number: int
    line: int
    run: float
    processors: int
    estimate: float
    user: str
    group: str
    #: Requested memory in KB for each processor; below 1 if unknown.
    memory: float


def read_swf(
    path: str | Path,
    processors: int | None = None,
    jobs: int | None = None,
    *,
    memory: bool = False,
) -> Workload:
    """Read the jobs of a log in the Standard Workload Format.

    Args:
        path: the file; its first bytes show whether it is compressed.
        processors: the number of processors of the machine; None for the number in the head of the
            file (MaxProcs or MaxNodes).
        jobs: the number of jobs to use, from the beginning; None for all.
        memory: whether the jobs need the memory that they request.

    Raises:
        WorkloadError: the file cannot be read, is cut off, is not in this format, or has no usable
            record.
    """
    header: dict[str, str] = {}
    skipped: list[Skipped] = []
    records = list(_records(path, header, skipped))
    machine = _machine(header) if processors is None else processors
    usable = sorted(_unique_and_fitting(records, machine, skipped))
    skipped.sort(key=lambda item: item.line)
    if not usable:
        raise _no_usable_record(path, skipped)
    if jobs is not None and jobs < len(usable):
        usable = usable[:jobs]
        last = max((record.line for record in usable), default=0)
        skipped = [item for item in skipped if item.line <= last]
    return Workload(_jobs(usable, memory=memory), machine, skipped, Path(path).name, header)


def _records(path: str | Path, header: dict[str, str], skipped: list[Skipped]) -> Iterator[_Record]:
    users: dict[bytes, str] = {}
    for number, line in _lines(path):
        fields = line.split()
        if not fields:
            continue
        if line.lstrip()[:1] == b";":
            _note_label(line, header)
            continue
        try:
            record = _parse(number, fields, users)
        except _UnusableError as error:
            skipped.append(Skipped(number, str(error), error.kind))
            continue
        yield record


def _lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Yield every line with its number. Errors name the line at which they occur."""
    number, full, line = 0, False, b"\n"
    try:
        with open_regular(path) as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            with gzip.open(raw, "rb") if packed else raw as stream:
                lines = iter(partial(stream.readline, _MAX_LINE_BYTES + 1), b"")
                for number, line in enumerate(lines, 1):
                    if len(line) > _MAX_LINE_BYTES:
                        text = f"not a workload log: a line of more than {_MAX_LINE_BYTES} bytes"
                        raise error_at(path, number, text)
                    if b"\0" in line:
                        raise error_at(path, number, "not a workload log: it has binary data")
                    full = full or line.count(b" ") + line.count(b"\t") >= _FIELDS - 1
                    yield number, line
    except EOFError:
        raise error_at(path, number, "the file is cut off: its gzip data ends here") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise error_at(path, number, f"the gzip data is damaged after this line: {error}") from None
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror or error}") from None
    if number == 0:
        raise WorkloadError(f"{path}: the file is empty")
    if full and not line.endswith(b"\n") and _is_short(line):
        raise error_at(
            path, number, f"the file is cut off: {len(line.split())} of {_FIELDS} fields"
        )


def _is_short(line: bytes) -> bool:
    return not line.lstrip().startswith(b";") and 0 < len(line.split()) < _FIELDS


def _note_label(line: bytes, header: dict[str, str]) -> None:
    match = _LABEL.match(line.decode("utf-8", "replace").strip())
    if match:
        header.setdefault(match[1], match[2].strip())


def _parse(line: int, fields: list[bytes], users: dict[bytes, str]) -> _Record:
    """Return the record in one line of a log.

    Args:
        line: the number of the line.
        fields: the fields of the line.
        users: the names of users and groups so far, by field, so that equal names share one object.

    Raises:
        _UnusableError: the line cannot be used.
    """
    if len(fields) < _MIN_FIELDS:
        raise _UnusableError("with too few fields", f"{len(fields)} of {_FIELDS} fields")
    if len(fields) < _FIELDS:
        fields = fields + [b"-1"] * (_FIELDS - len(fields))
    number, submit, run, allocated, requested, asked = _numbers(fields)
    if number < 0:
        raise _UnusableError("without a job number", "no job number")
    if submit < 0:
        raise _UnusableError("without a submit time", f"submit time {submit:g}")
    if run < 0:
        raise _UnusableError("without a run time", f"run time {run:g}")
    processors = int(allocated if allocated > 0 else requested)
    if processors < 1:
        raise _UnusableError("without processors", "no processors")
    estimate = max(1.0, asked if asked > 0 else run)
    user, group = (_name(fields[place], users) for place in (_USER, _GROUP))
    memory = _memory(fields[9])
    return _Record(submit, int(number), line, run, processors, estimate, user, group, memory)


def _name(field: bytes, names: dict[bytes, str]) -> str:
    """Return the number of a user or a group as text, which is the name used for it.

    ``names`` keeps each text by its field, so that equal names share one object.
    """
    return names.setdefault(field, field.decode("ascii", "replace"))


def _memory(field: bytes) -> float:
    """Return the requested memory in KB for each processor; 0 if the field has no valid number."""
    try:
        memory = float(field)
    except ValueError:
        return 0.0
    return memory if 0 < memory < _MAX_NUMBER else 0.0


def _numbers(fields: list[bytes]) -> list[float]:
    try:
        values = [float(fields[place]) for place in _NAMES]
    except ValueError:
        values = []
    # One comparison for all numbers, which is also false if one of them is NaN.
    if not (values and sum(map(abs, values)) < _MAX_NUMBER):
        reason = next(filter(None, (_fault(fields, place) for place in _NAMES)))
        raise _UnusableError("with what is no number", reason)
    return values


def _fault(fields: list[bytes], place: int) -> str:
    try:
        if abs(float(fields[place])) < _MAX_NUMBER / len(_NAMES):
            return ""
    except ValueError:
        pass
    text = fields[place].decode("utf-8", "backslashreplace")
    return f"field {place + 1} ({_NAMES[place]}): expected a number, not {text!r}"


def _machine(header: dict[str, str]) -> int | None:
    """Return the number of processors stated in the head of a log; None if it states none."""
    for label in ("MaxProcs", "MaxNodes"):
        match = _FIRST_NUMBER.match(header.get(label, ""))
        if match and int(match[0]) > 0:
            return int(match[0])
    return None


def _unique_and_fitting(
    records: list[_Record], machine: int | None, skipped: list[Skipped]
) -> Iterator[_Record]:
    """Yield the records that fit the machine and do not repeat the number of an earlier job.

    The other records are appended to ``skipped``, each with the reason.
    """
    seen: dict[int, int] = {}
    for record in records:
        first = seen.setdefault(record.number, record.line)
        too_wide = machine is not None and record.processors > machine
        if first != record.line:
            kind = "of a job that has one already"
            reason = f"job number {record.number} has been used in line {first}"
        elif too_wide:
            kind = TOO_WIDE
            reason = f"needs {record.processors} processors, the machine has {machine}"
        else:
            yield record
            continue
        skipped.append(Skipped(record.line, reason, kind))


def _no_usable_record(path: str | Path, skipped: list[Skipped]) -> WorkloadError:
    if not skipped:
        return WorkloadError(f"{path}: there are no records in it")
    first = skipped[0]
    return error_at(
        path, first.line, f"no usable record among {len(skipped)}; the first: {first.reason}"
    )


def _jobs(records: list[_Record], *, memory: bool) -> list[SimJob]:
    shared: dict[int, Sizes] = {}
    needs: dict[float, NodeNeeds | None] = {}
    return [
        SimJob(
            id=record.number,
            submit=record.submit,
            work=record.run * record.processors,
            sizes=shared.setdefault(record.processors, Sizes((record.processors,))),
            requested=record.processors,
            estimate_s=record.estimate,
            user=record.user,
            needs=needs.setdefault(record.memory, _needs(record.memory)) if memory else None,
            account="" if record.group == "-1" else record.group,
        )
        for record in records
    ]


def _needs(memory: float) -> NodeNeeds | None:
    """Return the needs of a job that requests ``memory`` KB for each processor; None for 0."""
    return NodeNeeds(((MEMORY, int(memory) * 1024),)) if memory >= 1 else None
