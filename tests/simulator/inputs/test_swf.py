"""Logs: what is usable, what is told of the rest, and what is no log at all."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.simulator.inputs.swf import read_swf
from pliant.simulator.inputs.workload import TOO_WIDE, Skipped, WorkloadError
from pliant.simulator.inputs.workload_options import merge_side_file

NO_NUMBER = "with what is no number"
HEADER = "; Version: 2.2\n; MaxProcs: 128\n; UnixStartTime: 893466664\n"


def line(number: object, submit: object, run: object, used: object = 4, **more: object) -> str:
    fields = [number, submit, -1, run, used, -1, -1, more.get("asked", -1), more.get("time", -1)]
    return " ".join(map(str, [*fields, -1, 1, more.get("user", 7), -1, -1, -1, -1, -1, -1]))


def log(tmp_path: Path, *lines: str, header: str = HEADER, end: str = "\n") -> Path:
    path = tmp_path / "log.swf"
    path.write_bytes((header + end.join(lines) + end).encode())
    return path


def test_a_record_becomes_a_rigid_job_with_its_estimate(tmp_path: Path) -> None:
    workload = read_swf(log(tmp_path, line(3, 60, 100, 4, time=600)))
    (job,) = workload.jobs
    assert (job.id, job.submit, job.work, job.runtime, job.estimate_s) == (3, 60, 400, 100, 600)
    assert (str(job.sizes), job.requested, job.user, job.malleable) == ("4", 4, "7", False)
    assert (workload.processors, workload.name, workload.skipped) == (128, "log.swf", [])
    assert workload.header["UnixStartTime"] == "893466664"


@pytest.mark.parametrize(
    ("text", "size", "estimate"),
    [
        (line(1, 0, 100, 4, asked=8), 4, 100),
        (line(1, 0, 100, -1, asked=8), 8, 100),
        (line(1, 0, 100, 0, asked=8), 8, 100),
        (line(1, 0, 0, 4), 4, 1),
        (line(1, 0, 100, 4, time=0), 4, 100),
        (line(1, 0, 100, 4, time=50), 4, 50),
        (line(1, 0, 100, 128), 128, 100),
    ],
)
def test_sizes_and_estimates(tmp_path: Path, text: str, size: int, estimate: float) -> None:
    (job,) = read_swf(log(tmp_path, text)).jobs
    assert (job.requested, job.estimate_s) == (size, estimate)


@pytest.mark.parametrize(
    ("text", "reason", "kind"),
    [
        (line(1, 0, -1), "run time -1", "without a run time"),
        (line(1, 0, 10, -1), "no processors", "without processors"),
        (line(1, -1, 10), "submit time -1", "without a submit time"),
        (line(-1, 0, 10), "no job number", "without a job number"),
        (line(1, 0, 10, 129), "needs 129 processors, the machine has 128", TOO_WIDE),
        (line(1, 0, "abc"), "field 4 (run time): expected a number, not 'abc'", NO_NUMBER),
        (line(1, "nan", 10), "field 2 (submit time): expected a number, not 'nan'", NO_NUMBER),
        (
            line(1, 0, 10, 4, time="inf"),
            "field 9 (requested time): expected a number, not 'inf'",
            NO_NUMBER,
        ),
        (line(2, 5, 10), "job number 2 has been used in line 4", "of a job that has one already"),
        ("1 0 -1 10", "4 of 18 fields", "with too few fields"),
    ],
)
def test_what_is_not_usable_is_told_with_line_and_reason(
    tmp_path: Path, text: str, reason: str, kind: str
) -> None:
    workload = read_swf(log(tmp_path, line(2, 0, 10), text))
    assert [job.id for job in workload.jobs] == [2]
    assert workload.skipped == [Skipped(5, reason, kind)]


def test_oddities_of_archived_logs_are_read(tmp_path: Path) -> None:
    lines = [
        "\t" + line(9, "70.5", "10.25", "4.0").replace(" ", "\t"),
        "",
        "; a comment inside, with MaxProcs: 4 and bytes that are no text \xff",
        "5 70 -1 20 8",  # only what is needed
        line(4, 60, 10) + " and more",
    ]
    workload = read_swf(log(tmp_path, *lines, end="\r\n"))
    assert [(job.id, job.submit, job.runtime, job.requested) for job in workload.jobs] == [
        (4, 60, 10, 4),
        (5, 70, 20, 8),
        (9, 70.5, 10.25, 4),
    ]
    assert (workload.skipped, workload.processors) == ([], 128)


def test_jobs_are_ordered_by_submit_time_then_number(tmp_path: Path) -> None:
    workload = read_swf(log(tmp_path, line(7, 10, 1), line(2, 10, 1), line(9, 3, 1)))
    assert [job.id for job in workload.jobs] == [9, 2, 7]


def test_the_first_jobs_only(tmp_path: Path) -> None:
    path = log(tmp_path, line(1, 0, -1), line(2, 0, 1), line(3, 9, 1), line(4, 9, -1))
    workload = read_swf(path, jobs=1)
    assert [job.id for job in workload.jobs] == [2]
    assert [item.line for item in workload.skipped] == [4]


@pytest.mark.parametrize(
    ("header", "given_", "expected", "jobs"),
    [
        ("", None, None, 2),
        ("; MaxNodes: 64\n", None, 64, 1),
        ("; MaxProcs: 1152 (144x8)\n; MaxNodes: 144\n", None, 1152, 2),
        ("; MaxProcs: unknown\n; MaxNodes: 144\n", None, 144, 2),
        ("; MaxProcs: -1\n", None, None, 2),
        ("; MaxProcs: 4\n", 256, 256, 2),
        ("; MaxProcs: 256\n", 32, 32, 1),
    ],
)
def test_the_machine_is_given_or_stands_in_the_head(
    tmp_path: Path, header: str, given_: int | None, expected: int | None, jobs: int
) -> None:
    path = log(tmp_path, line(1, 0, 1, 4), line(2, 0, 1, 100), header=header)
    workload = read_swf(path, given_)
    assert (workload.processors, len(workload.jobs)) == (expected, jobs)
    assert len(workload.jobs) + len(workload.skipped) == 2


def test_gzip_is_seen_from_its_bytes(tmp_path: Path) -> None:
    path = log(tmp_path, line(1, 0, 1))
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert len(read_swf(path).jobs) == 1


def damaged(tmp_path: Path, kind: str) -> Path:
    path = log(tmp_path, *(line(number, number, 1) for number in range(1, 2000)))
    packed = gzip.compress(path.read_bytes())
    path.write_bytes(
        {
            "empty": b"",
            "gzip cut off": packed[: len(packed) // 2],
            "gzip damaged": packed[:200] + bytes(300) + packed[500:],
            "gzip of nothing": gzip.compress(b""),
            "cut off": path.read_bytes()[:-20],
            "binary": b"\x89PNG\r\n" + bytes(100),
            "prose": b"Dear reader,\nthis is no log.\n",
            "only a head": HEADER.encode(),
            "nobody ran": (HEADER + line(1, 0, -1) + "\n").encode(),
        }[kind]
    )
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("empty", ": the file is empty"),
        ("gzip cut off", ": the file is cut off: its gzip data ends here"),
        ("gzip damaged", ": the gzip data is damaged after this line: "),
        ("gzip of nothing", ": the file is empty"),
        ("cut off", ":2002: the file is cut off: 11 of 18 fields"),
        ("binary", ": not a workload log: it has binary data"),
        ("prose", ":1: no usable record among 2; the first: 2 of 18 fields"),
        ("only a head", ": there are no records in it"),
        ("nobody ran", ":4: no usable record among 1; the first: run time -1"),
    ],
)
def test_what_is_no_log_is_said_in_one_line(tmp_path: Path, kind: str, message: str) -> None:
    path = damaged(tmp_path, kind)
    with pytest.raises(WorkloadError) as caught:
        read_swf(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="No such file"):
        read_swf(tmp_path / "none")
    with pytest.raises(WorkloadError, match="Is a directory"):
        read_swf(tmp_path)


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_are_read_or_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.swf"
    path.write_bytes(b"\n".join([*lines, line(1, 0, 5).encode(), b""]))
    try:
        workload = read_swf(path)
    except WorkloadError:
        return
    assert all(job.submit >= 0 and job.work >= 0 and job.requested >= 1 for job in workload.jobs)


def test_the_log_of_the_sp2(workloads: Path) -> None:
    begun = time.process_time()
    workload = read_swf(workloads / "SDSC-SP2-1998-4.2-cln.swf.gz")
    assert time.process_time() - begun < 10, "usually about one second"
    assert (len(workload.jobs), len(workload.skipped), workload.processors) == (54_044, 5_671, 128)
    assert {item.reason for item in workload.skipped} == {"run time -1"}
    ran = [job.runtime for job in workload.jobs if job.runtime > 0]
    assert len(ran) == 54_034
    assert sum(ran) / len(ran) == pytest.approx(7390.6, abs=0.05)


def test_the_log_of_the_lublin_model(workloads: Path) -> None:
    workload = read_swf(workloads / "lublin_256.swf.gz")
    assert (len(workload.jobs), workload.processors) == (10_000, 256)
    assert sum(job.requested for job in workload.jobs) / 10_000 == pytest.approx(22.10, abs=0.005)


@pytest.mark.timeout(30)
def test_only_a_regular_file_with_lines_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null")):
        with pytest.raises(WorkloadError, match="not a regular file"):
            read_swf(path)
    sparse = tmp_path / "sparse.swf"
    with sparse.open("wb") as file:
        file.truncate(1 << 32)
    with pytest.raises(WorkloadError, match=r":1: .*a line of more than"):
        read_swf(sparse)
    with pytest.raises(WorkloadError, match="not a regular file"):
        merge_side_file(read_swf(log(tmp_path, line(1, 0, 100))), pipe)
