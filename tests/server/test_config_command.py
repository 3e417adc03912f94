"""``pliant config``: values with their origin, errors with their place, and what changes need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pliant.server.config import Config
from pliant.server.config_command import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.yaml"
    path.write_text("# ours\nstrategy: fcfs\n\nnegotiation:\n  rounds: 4\nlease_s: 30\n")
    return path


def test_every_value_has_its_origin(
    file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIANT_STATE_DIR", "/elsewhere")
    monkeypatch.delenv("PLIANT_RUN_DIR", raising=False)
    assert main(["show", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == list(Config.__struct_fields__)
    assert found["strategy"] == {"value": "fcfs", "origin": f"{file}:2"}
    assert found["negotiation"]["value"]["rounds"] == 4
    assert found["state_dir"] == {"value": "/elsewhere", "origin": "$PLIANT_STATE_DIR"}
    assert found["quiet_s"]["origin"] == "default"
    assert main(["show", "--changed", str(file)]) == 0
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["state_dir", "strategy", "negotiation", "lease_s"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("debug: false\nlease_s: soon\n", "line 2: lease_s"),
        ("\nquiet: 3\n", "line 2: quiet"),
        ("negotiation:\n  rounds: 0\n", "line 1: negotiation"),
        ("debug: true\nuser_limits:\n  pending_jobs: many\n", "line 3: user_limits.pending_jobs"),
    ],
)
def test_errors_name_file_line_and_key(
    tmp_path: Path, file: Path, capsys: Capture, text: str, place: str
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text)
    assert main(["check", str(file), str(wrong)]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith(str(file))
    assert f"{wrong}: {place}" in captured.err
    assert main(["check", str(file)]) == 0


def test_differences_say_what_they_need(tmp_path: Path, file: Path, capsys: Capture) -> None:
    new = tmp_path / "new.yaml"
    new.write_text("strategy: fcfs\nquiet_s: 5\nlease_s: 60\n")
    assert main(["diff", str(file), str(new), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    needs = {key: row["needs"] for key, row in found.items()}
    assert needs == {"negotiation": "reload", "quiet_s": "reload", "lease_s": "restart"}
    assert main(["diff", str(file)]) == 1
    assert "strategy" in capsys.readouterr().out
    assert main(["diff", str(file), str(file)]) == 0
    assert main(["diff", str(file), str(tmp_path / "missing")]) == 2
