"""The cost of shrinking and expanding: what is counted, and a short measurement."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from pliant.client.api import Event
from pliant.examples.experiments.adaptive_vs_rigid import __main__ as command
from pliant.examples.experiments.adaptive_vs_rigid import resize_cost
from pliant.examples.experiments.adaptive_vs_rigid.processor_use import Sample
from pliant.examples.experiments.adaptive_vs_rigid.resize_cost import (
    residual_load,
    resizes_of,
    shrunk_times,
)


def event(time: float, kind: str, **data: Any) -> Event:
    return Event(seq=1, time=time, kind=kind, job=1, data=data)


def resized(time: float, number: int, before: int, after: int) -> Event:
    sizes = {"from": before, "to": after}
    return event(time, "job.resized", resize=number, seconds={"total": 0.5}, bytes_moved=8, **sizes)


HISTORY = [
    event(10.0, "offer.sent", resize=1, size=2, **{"from": 4}),
    resized(11.0, 1, 4, 2),
    event(11.5, "processors.released", cause="resize"),
    event(12.0, "processors.released", cause="resize"),
    event(20.0, "offer.sent", resize=2, size=4, **{"from": 2}),
    resized(23.0, 2, 2, 4),
    event(30.0, "processors.released", cause="end"),
]


def test_durations_of_resizes_begin_with_the_offer() -> None:
    shrink, growth = resizes_of(HISTORY)
    assert (shrink["pause_s"], shrink["done_s"], shrink["released_s"]) == (0.5, 1.0, 2.0)
    assert (growth["done_s"], growth["released_s"]) == (3.0, None)


def test_a_job_counts_as_shrunk_until_the_next_growth_is_offered() -> None:
    assert shrunk_times(HISTORY) == [(11.0, 12.0, 20.0)]


def test_only_the_load_on_vacated_processors_is_residual() -> None:
    """Processors 2 and 3 are vacated; the rank on 3 uses half a second within 5 s."""

    def sample(at: float, busy: float) -> Sample:
        return Sample(at, {(1, 0): at, (1, 3): busy, (2, 2): at}, {(1, 0), (1, 3), (2, 2)})

    found = residual_load([sample(13.0, 0.0), sample(18.0, 0.5)], 1, 2, [(11.0, 12.0, 20.0)])
    assert found["steady_mean_percent"] == pytest.approx(5.0)
    assert (found["steady_ranks"], found["samples"]) == (1, 1)
    assert found["exiting_mean_percent"] is None


@pytest.mark.parametrize(
    ("option", "message"),
    [("--processors=3", "expected an even number >= 2"), ("--edge=5", "a whole number >= 8")],
)
def test_wrong_options_are_refused(
    option: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["cost", option])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.cluster
@pytest.mark.mpi
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("state_dir")
def test_a_shrunk_job_leaves_no_rank_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resize_cost, "_STEADY_S", 1.0)  # in which job 1 computes
    words = ["cost", "--edge", "8", "--repeats", "1", "--processors", "2", "--out", str(tmp_path)]
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert command.main(words) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    found = json.loads((tmp_path / "cost.json").read_text())
    sizes = [(entry["from"], entry["to"]) for entry in found["resizes"]]
    # By the operator, and by the strategy when job 2 arrives and ends.
    assert sizes == [(2, 1), (1, 2)] * 2
    assert all(entry["pause_s"] > 0 and entry["bytes_moved"] > 0 for entry in found["resizes"])
    assert found["residual"]["steady_ranks"] == 0
    assert found["residual"]["steady_mean_percent"] == 0
    for job in (1, 2):
        assert any(entry[f"job_{job}"] > 0 for entry in found["use"])
    assert "| 2 to 1 | 2 |" in (tmp_path / "cost.md").read_text()
    assert not (tmp_path / "cluster").exists()
