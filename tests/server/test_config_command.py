"""``pliant config``: values with their origin, errors with their place, and what changes need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pliant.server.config import Config
from pliant.server.config_command import main
from pliant.server.running_server_config import remove_running_config, write_running_config

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


def test_a_file_is_compared_with_the_running_server(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLIANT_RUN_DIR", raising=False)
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    file = tmp_path / "server.yaml"
    file.write_text(f"state_dir: {tmp_path}\nstrategy: fcfs\noperators: [root]\n")
    assert main(["diff", "--running", str(file)]) == 2
    assert "no server runs" in capsys.readouterr().err
    in_force = Config(state_dir=str(tmp_path), strategy="sjf")
    write_running_config(in_force)
    assert main(["diff", "--running", "--json", str(file)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "strategy": {"old": "sjf", "new": "fcfs", "needs": "restart"},
        "operators": {"old": [], "new": ["root"], "needs": "reload"},
    }
    assert main(["diff", "--running", str(file), str(file)]) == 2
    assert main(["diff", "--running", "--run-dir", str(tmp_path / "none"), str(file)]) == 2
    file.write_text(f"state_dir: {tmp_path}\nstrategy: sjf\n")
    assert main(["diff", "--running", str(file)]) == 0
    remove_running_config(in_force)
    assert main(["diff", "--running", str(file)]) == 2


def test_files_of_node_controllers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    right, wrong = tmp_path / "node.yaml", tmp_path / "wrong.yaml"
    right.write_text("name: n7\nslots: 3\n\nlog_level: debug\n")
    wrong.write_text("name: n7\nslots: many\n")
    assert main(["show", "--node", "--changed", "--json", str(right)]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["slots"] == {"value": 3, "origin": f"{right}:2"}
    assert "bind" not in shown
    assert main(["check", "--node", str(right)]) == 0
    assert main(["check", "--node", str(right), str(wrong)]) == 2
    assert f"{wrong}:2: slots" in capfd.readouterr().err
    other = tmp_path / "other.yaml"
    other.write_text("name: n7\nslots: 4\nlog_level: info\n")
    assert main(["diff", "--node", str(right), str(other)]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines == [
        "slots: 3 -> 4  (needs a restart)",
        'log_level: "debug" -> "info"  (SIGHUP)',
    ]
    assert main(["diff", "--node", str(right), str(wrong)]) == 2
    assert f"{wrong}:2: slots" in capfd.readouterr().err
    assert main(["diff", "--node", "--running", str(right)]) == 2
