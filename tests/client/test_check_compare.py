"""What `pliant check` finds in two outputs and in a source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.client.check_compare import Run, lost_variables, problems

ONE = Run("undisturbed on 2 processes", 0, None, "sum 1.0\nseconds 3.1\n")
TWO = Run("undisturbed on 4 processes", 0, None, "sum 1.0000000001\nseconds 2.7\n")


@pytest.mark.parametrize("output", [ONE.output, "sum 1.00000000003\nseconds 99.5\n"])
def test_equal_runs_have_no_problems(output: str) -> None:
    assert problems((ONE, TWO), replace(ONE, output=output), 1e-6) == []


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
    found = problems(
        (replace(TWO, output="sum 1.0\nseconds 1\n"), ONE), replace(ONE, output=output), 1e-6
    )
    assert len(found) == 1
    assert word in found[0]
    assert "job.state" in found[0]


def test_an_exit_code_names_the_variable() -> None:
    text = "UnboundLocalError: cannot access local variable 't0' where it is not associated\n"
    found = problems((ONE, TWO), replace(ONE, exit_code=1, output=text), 1e-6)
    assert "exit code 1" in found[0]
    assert "'t0'" in found[1]


def test_a_run_that_was_not_resized_or_fails_alone_is_no_success() -> None:
    assert problems((ONE, TWO), replace(ONE, refused="resizes: none"), 1e-6) == ["resizes: none"]
    assert "correct this first" in problems((ONE, replace(TWO, exit_code=3)), ONE, 1e-6)[0]


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
