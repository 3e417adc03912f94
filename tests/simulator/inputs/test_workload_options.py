"""Side files: malleable attributes of jobs of a log, and precise errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pliant.core.values.profit_contract import Contract
from pliant.core.values.sizes import Sizes
from pliant.simulator.inputs.workload import SimJob, Workload, WorkloadError
from pliant.simulator.inputs.workload_options import merge_side_file, read_side_file

HEAD = "job,kind,pmin,pmax,preferred,adaptation_cost,negotiation_delay\n"


def workload() -> Workload:
    jobs = [SimJob(n, n, 800.0, Sizes((8,)), 8, 120.0) for n in range(1, 4)]
    return Workload(jobs, processors=64, name="log.swf")


def side(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "side.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_attributes_go_to_their_jobs(tmp_path: Path) -> None:
    text = HEAD + "; a comment\n2,malleable,2,64,16,0.002,0.0015\n\n3,moldable,4,,,,\n77,,,,,,\n"
    first, second, third = merge_side_file(workload(), side(tmp_path, text)).jobs
    assert first == workload().jobs[0]
    assert (str(second.sizes), second.sizes.preferred, second.malleable) == ("2-64", 16, True)
    assert (second.adaptation_cost, second.negotiation_delay) == (0.002, 0.0015)
    assert (str(third.sizes), third.malleable, third.adaptation_cost) == ("4-8", False, None)
    assert (second.work, second.requested, second.estimate_s) == (800.0, 8, 120.0)


def test_a_contract_is_added_and_the_job_stays_as_it_is(tmp_path: Path) -> None:
    text = "job,kind,deadline,profit\n1,,60,1000:soft=0.25\n2,moldable,30,\n3,,,\n"
    first, second, third = merge_side_file(workload(), side(tmp_path, text)).jobs
    assert first == replace(workload().jobs[0], contract=Contract(60.0, 1000.0, 0.25))
    assert (second.contract, second.malleable) == (Contract(30.0), False)
    assert (third.contract, third.malleable) == (None, True)


def test_a_priority_is_added_and_the_job_stays_as_it_is(tmp_path: Path) -> None:
    text = "job,kind,priority\n1,,-7\n2,malleable,3\n"
    first, second, third = merge_side_file(workload(), side(tmp_path, text)).jobs
    before = workload().jobs
    assert (first, third) == (replace(before[0], priority=-7), before[2])
    assert (second.priority, second.malleable) == (3, True)
    for wrong in ("high", "1.5", "1000001"):
        with pytest.raises(WorkloadError, match=r"side\.csv:2: priority: expected"):
            read_side_file(side(tmp_path, f"job,priority\n1,{wrong}\n"))


def test_columns_may_stand_in_any_order_or_be_left_out(tmp_path: Path) -> None:
    (item,) = read_side_file(side(tmp_path, "\ufeffPmax, job\n 16 , 3 \n"))
    assert (item.job, item.kind, item.pmin, item.pmax, item.line) == (3, "malleable", None, 16, 2)


def test_a_job_without_bounds_keeps_its_size(tmp_path: Path) -> None:
    (job, *_) = merge_side_file(workload(), side(tmp_path, "job,kind\n1,rigid\n")).jobs
    assert (str(job.sizes), job.malleable) == ("8", False)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,,9,4,,,", ":2: pmin: expected at most pmax (4), not '9'"),
        ("1,,0,4,,,", ":2: pmin: expected a whole number >= 1, not '0'"),
        ("1,,two,4,,,", ":2: pmin: expected a whole number >= 1, not 'two'"),
        ("1,,2,4.5,,,", ":2: pmax: expected a whole number >= 1, not '4.5'"),
        ("1,,2,4,,-1,", ":2: adaptation_cost: expected seconds >= 0, not '-1'"),
        ("1,,2,4,,,nan", ":2: negotiation_delay: expected seconds >= 0, not 'nan'"),
        ("1,,2,4,,,soon", ":2: negotiation_delay: expected seconds >= 0, not 'soon'"),
        ("1,elastic,2,4,,,", ":2: kind: expected one of rigid, moldable, malleable, not 'elastic'"),
        ("x,,2,4,,,", ":2: job: expected a whole number >= 0, not 'x'"),
        (",,2,4,,,", ":2: job: expected a job number, not ''"),
        ("1,,2,4,6,,", ":2: preferred: job 1: expected one of 2-4, not 6"),
        ("1,rigid,2,4,,,", ":2: kind: job 1: a rigid job has one size, not 2-4"),
        ("1,,65,99,,,", ":2: pmin: job 1: expected at most the machine's 64 processors, not 65"),
        ("1,,2", ":2: expected 7 values, not 3"),
        ("1,,2,4,,,\n1,,2,4,,,", ":3: job: 1 stands in line 2, too"),
        ("77,,2,4,,,", ": none of its 1 jobs is in log.swf"),
    ],
)
def test_errors_name_line_and_column(tmp_path: Path, row: str, message: str) -> None:
    path = side(tmp_path, HEAD + row + "\n")
    with pytest.raises(WorkloadError) as caught:
        merge_side_file(workload(), path)
    assert str(caught.value) == f"{path}{message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("job,minpe\n", "expected the names of columns"),
        ("pmin,pmax\n", "expected a column `job`"),
        ("job,job\n", "no column twice"),
    ],
)
def test_the_first_line_names_the_columns(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        read_side_file(side(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="No such file"):
        read_side_file(tmp_path / "none")
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkloadError, match="not UTF-8"):
        read_side_file(path)
