"""What `pliant check` finds in two outputs and in a source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from pliant.client.api import Event, Job
from pliant.client.client_errors import RequestError
from pliant.client.resize_check import check_command, runs
from pliant.client.resize_check.compare import ProgramRun, failed_run, find_problems, lost_variables
from pliant.client.resize_check.runs import ProgramRunner, run_all

ONE = ProgramRun("undisturbed on 2 processes", 0, None, "sum 1.0\nseconds 3.1\n")
TWO = ProgramRun("undisturbed on 4 processes", 0, None, "sum 1.0000000001\nseconds 2.7\n")


@pytest.mark.parametrize("output", [ONE.output, "sum 1.00000000003\nseconds 99.5\n"])
def test_equal_runs_have_no_problems(output: str) -> None:
    assert find_problems((ONE, TWO), replace(ONE, output=output), 1e-6) == []


@pytest.mark.parametrize(
    ("output", "word"),
    [
        ("sum 1.5\nseconds 3\n", "1.5"),
        ("sum 1.0\n", "missing"),
        ("sum 1.0\nseconds 3\nagain\n", "one more: again"),
        ("sum nan\nseconds 3\n", "nan"),
    ],
)
def test_another_output_is_shown_with_a_remedy(output: str, word: str) -> None:
    found = find_problems(
        (replace(TWO, output="sum 1.0\nseconds 1\n"), ONE), replace(ONE, output=output), 1e-6
    )
    assert len(found) == 1
    assert word in found[0]
    assert "job.state" in found[0]


def test_an_exit_code_names_the_variable() -> None:
    text = "UnboundLocalError: cannot access local variable 't0' where it is not associated\n"
    found = find_problems((ONE, TWO), replace(ONE, exit_code=1, output=text), 1e-6)
    assert "exit code 1" in found[0]
    assert "'t0'" in found[1]


def test_a_run_that_was_not_resized_or_fails_alone_is_no_success() -> None:
    assert find_problems((ONE, TWO), replace(ONE, refused="resizes: none"), 1e-6) == [
        "resizes: none"
    ]
    assert "exit code 3; correct this first" in failed_run(replace(TWO, exit_code=3))
    assert failed_run(TWO) == ""


def test_a_run_that_this_check_ended_says_why() -> None:
    ended = replace(ONE, exit_code=None, signal=0, output="", refused="resizes: none")
    assert find_problems((ONE, TWO), ended, 1e-6) == ["resizes: none"]
    late = replace(ended, refused="", reason="it did not end within 5 s (--timeout)")
    assert late.ending == "it did not end within 5 s (--timeout)"
    assert "| no output; it did not end within 5 s (--timeout)" in failed_run(late)


class Script:
    """Gives runs with the exit codes that a test names."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def undisturbed(self, words: list[str], size: int) -> ProgramRun:
        return replace(ONE, exit_code=self.codes.pop(0))

    def resized(self, words: list[str], small: int, large: int) -> ProgramRun:
        return replace(ONE, exit_code=self.codes.pop(0))


def test_the_first_run_that_fails_is_the_last() -> None:
    for codes, number in [((1, 0, 0), 1), ((0, 1, 0), 2), ((0, 0, 1), 3)]:
        assert len(run_all(cast(ProgramRunner, Script(*codes)), ["p.py"], 2, 4)) == number


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--timeout", "-1", "p.py"], "--timeout: '-1': write a number of seconds above 0"),
        (["--timeout", "nan", "p.py"], "--timeout: 'nan': write a number of seconds above 0"),
        (["--tolerance", "nan", "p.py"], "--tolerance: 'nan': write a number from 0 on"),
        (["--tolerance", "-1", "p.py"], "--tolerance: '-1': write a number from 0 on"),
        (["--sizes", "4-2", "p.py"], "--sizes 4-2: the first number must be smaller"),
        (["--sizes", "a-2", "p.py"], "--sizes a-2: write two numbers from 1 to 64"),
        ([], "required: program\n"),
    ],
)
def test_wrong_usage_is_named(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = check_command.main(words)
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert says in capsys.readouterr().err


def test_variables_that_only_the_first_iteration_sets() -> None:
    source = """
def main(job):
    b = 0
    for it in job.steps(9):
        if it == 0:
            a, b = 1, 2
        if not it:
            c = 3
        if it == 5:
            d = 4
        if it:
            c = 1
"""
    assert list(lost_variables(source)) == [(6, "a")]
    assert list(lost_variables("def (")) == []


class Server:
    """Answers as a server whose job 1 runs and refuses each other size."""

    def __init__(self) -> None:
        self.cancelled = False

    def client(self, run: str) -> Server:
        return self

    def submit(self, *words: str, **options: object) -> int:
        return 1

    def job(self, number: int) -> Job:
        return Job(id=1, name="", user="", state="RUNNING", processors=2)

    def history(self, number: int) -> list[Event]:
        return [Event(1, 0.0, "application.registered")]

    def resize(self, number: int, size: int) -> None:
        raise RequestError("size 8 is not one of job 1's sizes 2")

    def cancel(self, number: int) -> None:
        self.cancelled = True


@pytest.mark.timeout(60)
def test_a_program_that_cannot_be_resized_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    monkeypatch.setattr(runs, "Client", server.client)
    play = ProgramRunner("run", str(tmp_path), timeout_s=600.0)
    run = play.resized(["p.py"], 2, 8)
    assert run.refused == "resizes: not to 8 processes: size 8 is not one of job 1's sizes 2"
    assert server.cancelled
    assert find_problems((ONE, TWO), run, 1e-6) == [run.refused]
