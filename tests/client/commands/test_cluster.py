"""``pliant cluster``: what it prints, and that mistakes become one line."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from pliant.client.commands.cluster import main
from testkit import loaded_modules

Capture = pytest.CaptureFixture[str]


def test_init_and_show(tmp_path: Path, capsys: Capture) -> None:
    place = str(tmp_path / "identity")
    words = ["--name", "blue", "--address", "front", "--address", "10.0.0.1", "--directory", place]
    assert main(["init", *words]) == 0
    made = capsys.readouterr().out
    assert f"cluster blue: keys and certificates are in {place}" in made
    assert f"{place}/root.key" in made
    assert "offline" in made
    assert main(["show", "--directory", place]) == 0
    shown = capsys.readouterr().out
    (fingerprint,) = (line for line in made.splitlines() if line.startswith("fingerprint"))
    assert fingerprint in shown
    assert "the server is pliant://blue/server/server, at server.pliant, front, 10.0.0.1" in shown
    (tmp_path / "identity" / "root.key").unlink()
    assert main(["show", "--directory", place]) == 0
    assert "key of the root (root.key): offline" in capsys.readouterr().out


def test_json(tmp_path: Path, capsys: Capture) -> None:
    words = ["--directory", str(tmp_path / "identity"), "--json"]
    assert main(["init", "--name", "blue", *words]) == 0
    made = json.loads(capsys.readouterr().out)
    assert main(["show", *words]) == 0
    assert json.loads(capsys.readouterr().out) == made
    kinds = {each["kind"]: each for each in made["certificates"]}
    assert list(kinds) == ["root", "issuing authority", "server"]
    assert made["fingerprints"] == [kinds["root"]["fingerprint"]]
    assert kinds["server"]["identity"] == "pliant://blue/server/server"
    assert {each["state"] for each in kinds.values()} == {"valid"}
    assert made["cluster"] == "blue"
    assert made["root_key_is_here"] is True


def test_the_usual_place_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("PLIANT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr("socket.gethostname", lambda: "front.example.org")
    assert main(["init"]) == 0
    assert f"cluster front: keys and certificates are in {tmp_path}/state/identity" in (
        capsys.readouterr().out
    )


def test_a_relative_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--name", "blue", "--directory", "identity"]) == 0
    assert main(["show", "--directory", "./identity/"]) == 0


def test_states_of_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    words = ["--directory", str(tmp_path / "identity"), "--json"]
    assert main(["init", "--name", "blue", *words]) == 0
    capsys.readouterr()
    now = time.time()
    for days, expected in [(-1, "not valid yet"), (200, "renew"), (400, "expired")]:
        monkeypatch.setattr(time, "time", lambda days=days: now + days * 86400)
        assert main(["show", *words]) == 0
        found = json.loads(capsys.readouterr().out)["certificates"]
        assert found[-1]["state"] == expected
        assert main(["show", *words[:2]]) == 0
        shown = capsys.readouterr().out
        assert expected in shown
        assert ("set it with NTP" in shown) == (expected != "renew")


def test_a_strange_directory_cannot_write_to_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    assert main(["init", "--name", "blue", "--directory", str(tmp_path / "a\n\x1b[2Jb")]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["init", "--name", "a/b"], 2, "--name 'a/b'"),
        (["init", "--name", ""], 2, "--name ''"),
        (["init", "--address", "front:443"], 2, "address 'front:443'"),
        (["init", "--directory", ""], 2, "--directory"),
        (["init", "--directory", "/dev/null/x"], 1, "/dev/null"),
        (["init", "--directory", "/dev/null"], 1, "/dev"),
        (["init", "--directory", "/"], 1, "exists already"),
        (["init", "--directory", "."], 1, "exists already"),
        (["show", "--directory", "/dev/null"], 1, "/dev/null"),
        (["show", "--directory", "/nonexistent"], 1, "pliant cluster init"),
    ],
    ids=str,
)
def test_mistakes_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    words: list[str],
    code: int,
    text: str,
) -> None:
    monkeypatch.setenv("PLIANT_STATE_DIR", str(tmp_path / "state"))
    assert main(words) == code
    error = capsys.readouterr().err
    assert error.startswith("pliant cluster: ")
    assert error.count("\n") == 1
    assert text in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [[], ["bogus"], ["init", "--bogus"], ["show", "x"]], ids=str)
def test_wrong_usage(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "pliant cluster" in capsys.readouterr().err


def test_an_identity_is_not_overwritten(tmp_path: Path, capsys: Capture) -> None:
    words = ["--directory", str(tmp_path / "identity")]
    assert main(["init", *words]) == 0
    assert main(["init", *words]) == 1
    assert "move the directory away" in capsys.readouterr().err


def test_files_that_others_can_read_are_named(tmp_path: Path, capsys: Capture) -> None:
    words = ["--directory", str(tmp_path / "identity")]
    assert main(["init", *words]) == 0
    os.chmod(tmp_path / "identity" / "issuer.key", 0o644)
    assert main(["show", *words]) == 1
    assert "chmod 600" in capsys.readouterr().err


def test_help_loads_no_cryptography() -> None:
    code = "from pliant.client.commands.cluster import main; main(['init', '--help'])"
    loaded = {name.partition(".")[0] for name in loaded_modules(code)}
    assert loaded & {"cryptography", "grpc", "sqlalchemy", "rich", "yaml"} == set()
