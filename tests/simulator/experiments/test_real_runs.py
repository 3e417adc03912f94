"""Results of real jobs in the report: their file, and their tables next to printed values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pliant.simulator.experiments.definition.definitions import ExperimentError
from pliant.simulator.experiments.definition.reading import find_experiment
from pliant.simulator.experiments.reporting.document import Grid, as_markdown
from pliant.simulator.experiments.reporting.real_runs import (
    REAL_RUNS,
    RealRun,
    read_real_runs,
    real_run_blocks,
    write_real_runs,
)

RUN = RealRun(
    experiment="kumar-4.4",
    setup={"mean_interarrival_s": 100, "class": "adaptive"},
    seed=1,
    jobs=50,
    scale=0.5,
    load_average=1.0,
    real={"utilization": 0.5, "mean_response_s": 80.0, "adaptations": 7.0},
    simulated={"utilization": 0.48, "mean_response_s": 70.0},
    with_costs={"utilization": 0.51, "mean_response_s": 79.0, "adaptations": 8.0},
    costs={"start_s": 0.5, "end_s": 0.1, "adaptation_s": 0.03},
    distance=0.012,
)


def test_real_runs_stand_next_to_printed_values() -> None:
    blocks = list(real_run_blocks(find_experiment("kumar-4.4"), [RUN]))
    (grid,) = (block for block in blocks if isinstance(block, Grid))
    assert ["100", "adaptive", "utilization", "0.6840", "0.5000", "0.4800", "0.5100", "2.0"] in (
        grid.rows
    )
    text = as_markdown(blocks)
    assert "50 jobs, seed 1, 0.5 s for each second" in text
    assert "0.012" in text


def test_runs_of_other_experiments_and_of_rows_that_are_gone_are_left_out() -> None:
    gone = replace(RUN, setup={"mean_interarrival_s": 99, "class": "adaptive"})
    assert list(real_run_blocks(find_experiment("kumar-4.4"), [gone])) == []
    assert list(real_run_blocks(find_experiment("kumar-4.3"), [RUN])) == []


def test_real_runs_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_real_runs(tmp_path / REAL_RUNS, [RUN])
    assert read_real_runs(tmp_path / REAL_RUNS) == [RUN]


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot be read"), ("{", "is not a file"), ('[{"x": 1}]', "is not a file")],
)
def test_another_file_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / REAL_RUNS
    if text is not None:
        path.write_text(text)
    with pytest.raises(ExperimentError, match=f"--real .*{message}"):
        read_real_runs(path)
