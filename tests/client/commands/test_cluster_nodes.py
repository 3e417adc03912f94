"""Admitting nodes by commands: tokens, joining, listing, revoking, renewing."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.client.commands.cluster import main as cluster
from pliant.client.commands.node import main as node
from testkit import loaded_modules
from tlskit.node_joining import JoiningServer, start_joining_server

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture
def server(tmp_path: Path, monkeypatch: Patch) -> Iterator[JoiningServer]:
    """Start a listener, and make its state folder that of the commands."""
    state, run = tmp_path / "state", tmp_path / "run"
    state.mkdir(mode=0o700)
    run.mkdir(mode=0o700)
    monkeypatch.setenv("PLIANT_STATE_DIR", str(state))
    monkeypatch.setenv("PLIANT_RUN_DIR", str(run))
    made = start_joining_server(state / "identity", tmp_path / "hosts")
    (run / "cluster.addresses").write_text(json.dumps({"joining": str(made.address)}))
    yield made
    made.stop()


def token_for(capsys: Capture, *words: str) -> str:
    assert cluster(["token", *words]) == 0
    return capsys.readouterr().out.strip()


def use_host(monkeypatch: Patch, server: JoiningServer, name: str = "host") -> None:
    """Let the next commands run on another host."""
    monkeypatch.setenv("PLIANT_STATE_DIR", str(server.hosts / name))


def test_a_host_joins_and_leaves(
    server: JoiningServer, monkeypatch: Patch, capsys: Capture
) -> None:
    state = os.environ["PLIANT_STATE_DIR"]
    assert cluster(["token", "--node", "n7", "--ttl", "5m", "--slots", "16"]) == 0
    token, hint = capsys.readouterr()
    assert token.strip().isalnum(), "a script gets the token alone"
    assert "within 5m00s" in hint
    assert "16 slots" in hint
    assert cluster(["tokens"]) == 0
    listed = capsys.readouterr().out
    assert "n7" in listed
    assert token.strip() not in listed
    use_host(monkeypatch, server)
    assert node(["join", token]) == 0
    assert "this host is node n7 of cluster blue" in capsys.readouterr().out
    assert node(["join", token]) == 1
    assert "pliant node leave" in capsys.readouterr().err
    assert node(["show"]) == 0
    assert "slots: 16 at most" in capsys.readouterr().out
    assert node(["show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["node"], shown["slots"], shown["state"]) == ("n7", 16, "valid")
    assert node(["leave"]) == 0
    assert "pliant cluster revoke n7" in capsys.readouterr().out
    assert list((server.hosts / "host").iterdir()) == []
    for action in ("show", "leave"):
        assert node([action]) == 1
        assert "has not joined a cluster: run `pliant node join" in capsys.readouterr().err
    monkeypatch.setenv("PLIANT_STATE_DIR", state)
    assert cluster(["nodes"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["n7", "16", "joined"]


def test_a_token_from_stdin_and_another_address(
    server: JoiningServer, monkeypatch: Patch, capsys: Capture
) -> None:
    token = token_for(capsys, "--node", "n7", "--server", "front.invalid:1")
    use_host(monkeypatch, server)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{token[:50]}\n{token[50:]}\n"))
    assert node(["join", "-", "--address", str(server.address), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["slots"] is None


def test_a_name_that_is_taken_until_it_is_revoked(
    server: JoiningServer, monkeypatch: Patch, capsys: Capture
) -> None:
    server.join(server.token("n7"))
    assert cluster(["token", "--node", "n7"]) == 1
    assert "first run `pliant cluster revoke n7`" in capsys.readouterr().err
    assert cluster(["revoke", "n7"]) == 0
    assert "pliant cluster token --node n7" in capsys.readouterr().out
    assert cluster(["nodes", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["nodes"]
    assert found["state"] == "revoked"
    token = token_for(capsys, "--node", "n7")
    use_host(monkeypatch, server, "other")
    assert node(["join", token]) == 0
    assert server.nodes.read()["n7"].revoked_at is None
    # Its certificate has expired: the name is free again.
    now = time.time()
    monkeypatch.setenv("PLIANT_STATE_DIR", str(server.directory.parent))
    monkeypatch.setattr(time, "time", lambda: now + 40 * 86400)
    assert cluster(["nodes"]) == 0
    assert "expired" in capsys.readouterr().out
    assert cluster(["token", "--node", "n7"]) == 0


def test_a_revocation_withdraws_open_tokens(server: JoiningServer, capsys: Capture) -> None:
    server.join(server.token("n7"))
    server.token("n7")
    assert cluster(["revoke", "n7"]) == 0
    assert server.tokens.pending(now=time.time()) == []
    assert cluster(["revoke", "n8"]) == 1
    assert "there are: n7" in capsys.readouterr().err


def test_tokens_are_listed_and_withdrawn(server: JoiningServer, capsys: Capture) -> None:
    first, second = server.token("n1"), server.token("n2", max_slots=None)
    assert cluster(["tokens", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["tokens"]
    assert [(each["node"], each["slots"]) for each in listed] == [("n1", 16), ("n2", None)]
    assert "hash" not in listed[0]
    assert cluster(["withdraw", first.id, "n2"]) == 0
    assert f"token {second.id} of node n2 is withdrawn" in capsys.readouterr().out
    assert cluster(["withdraw", first.id]) == 1
    assert "there are: none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("addresses", "words", "code", "text"),
    [
        (None, [], 1, "`listen: HOST:PORT`"),
        ("junk", [], 1, "--server HOST:PORT"),
        ('{"joining": "0.0.0.0:7002"}', [], 0, "127.0.0.1:7002"),
        ('{"joining": "[::]:7002"}', [], 0, "127.0.0.1:7002"),
        ('{"joining": "10.0.0.1:7002"}', [], 0, "10.0.0.1:7002"),
        (None, ["--server", "front:1"], 0, "front:1"),
        (None, ["--server", "front"], 1, "HOST:PORT"),
        (None, ["--server", "unix:/run/x"], 1, "HOST:PORT"),
        (None, ["--ttl", "8d", "--server", "front:1"], 1, "at most 604800 s (7 days)"),
        (None, ["--ttl", "0s", "--server", "front:1"], 1, "more than 0 s"),
        (None, ["--ttl", "soon"], 2, "--ttl: 'soon'"),
    ],
    ids=str,
)
def test_the_address_in_a_token(
    server: JoiningServer,
    capsys: Capture,
    addresses: str | None,
    words: list[str],
    code: int,
    text: str,
) -> None:
    path = Path(os.environ["PLIANT_RUN_DIR"], "cluster.addresses")
    path.unlink()
    if addresses is not None:
        path.write_text(addresses)
    assert cluster(["token", "--node", "n7", *words]) == code
    told = capsys.readouterr().err
    assert text in told
    assert told.count("\n") == 1
    assert len(server.tokens.pending(now=time.time())) == (code == 0)


@pytest.mark.parametrize("name", ["", "a/b", "-x", "x" * 65])
def test_names_that_cannot_be_in_a_certificate(
    server: JoiningServer, capsys: Capture, name: str
) -> None:
    assert cluster(["token", f"--node={name}"]) == 2
    assert "--node" in capsys.readouterr().err
    assert server.tokens.pending(now=time.time()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["token"],
        ["token", "--node", "n7", "--slots", "0"],
        ["withdraw"],
        ["revoke"],
        ["roll-over"],
        ["roll-over", "back"],
    ],
    ids=str,
)
def test_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cluster(words)


@pytest.mark.parametrize(
    "words",
    [
        ["token", "--node", "n7"],
        ["tokens"],
        ["withdraw", "n7"],
        ["nodes"],
        ["revoke", "n7"],
        ["renew"],
        ["roll-over", "start"],
        ["roll-over", "finish"],
    ],
    ids=str,
)
def test_without_an_identity_all_actions_say_how_to_make_one(
    words: list[str], tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setenv("PLIANT_STATE_DIR", str(tmp_path))
    assert cluster(words) == 1
    assert "pliant cluster init" in capsys.readouterr().err
    (tmp_path / "identity").mkdir(mode=0o700)
    assert cluster(words) == 1
    assert "pliant cluster init" in capsys.readouterr().err
    assert list((tmp_path / "identity").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_does_not_write_into_the_directory_of_another_account(
    server: JoiningServer, capsys: Capture
) -> None:
    for path in [server.directory, *server.directory.iterdir()]:
        os.chown(path, 65534, 65534)
    for words in (["token", "--node", "n7"], ["renew"], ["roll-over", "start"]):
        assert cluster(words) == 1
        assert "run this command as that user" in capsys.readouterr().err


def test_wrong_tokens_are_one_line(
    server: JoiningServer, monkeypatch: Patch, capsys: Capture
) -> None:
    use_host(monkeypatch, server)
    for token, text in [("x", "not a join token"), ("pliantjoin1xabc", "typo"), ("", "not a join")]:
        assert node(["join", token]) == 1
        told = capsys.readouterr().err
        assert text in told
        assert told.count("\n") == 1
    assert not server.hosts.exists()


def test_a_damaged_identity_can_be_given_up(
    server: JoiningServer, monkeypatch: Patch, capsys: Capture
) -> None:
    server.join(server.token())
    use_host(monkeypatch, server)
    (server.place("host") / "node.key").write_text("junk")
    assert node(["show"]) == 1
    assert "node.key is damaged" in capsys.readouterr().err
    assert node(["leave"]) == 0
    assert not server.place("host").exists()


def test_renew_and_roll_over(server: JoiningServer, capsys: Capture, tmp_path: Path) -> None:
    server.join(server.token())
    server.token("n8")
    assert cluster(["renew", "--address", "front"]) == 0
    assert "renewed" in capsys.readouterr().out
    assert cluster(["show"]) == 0
    assert "server.pliant, front, 127.0.0.1" in capsys.readouterr().out
    assert cluster(["renew", "--remove-address", "front", "--address", "back"]) == 0
    assert cluster(["renew", "--remove-address", "front"]) == 1
    assert "127.0.0.1" in capsys.readouterr().err
    assert cluster(["renew", "--only-address", "::1", "--address", "back"]) == 2
    assert cluster(["renew", "--only-address", "127.0.0.1", "--only-address", "door"]) == 0
    assert cluster(["show"]) == 0
    assert "server.pliant, door, 127.0.0.1" in capsys.readouterr().out
    shutil.move(server.directory / "root.key", tmp_path / "root.key")
    assert cluster(["renew"]) == 1
    assert "--root-key FILE" in capsys.readouterr().err
    assert cluster(["renew", "--server-only", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["fingerprints"]) == 1
    assert cluster(["renew", "--root-key", str(tmp_path / "root.key")]) == 0
    assert cluster(["renew", "--root-key", str(tmp_path / "none")]) == 1
    assert cluster(["roll-over", "finish"]) == 1
    assert "roll-over start" in capsys.readouterr().err
    assert cluster(["roll-over", "start"]) == 0
    assert "nodes that renew their certificates: n7" in capsys.readouterr().out
    assert cluster(["show"]) == 0
    assert capsys.readouterr().out.count("fingerprint of the root") == 2
    assert cluster(["nodes"]) == 0
    assert "under the old root: n7" in capsys.readouterr().out
    assert cluster(["roll-over", "finish"]) == 1
    assert "under the old root: n7" in capsys.readouterr().err
    server.join(server.token("n9"), "n9")
    assert cluster(["revoke", "n7"]) == 0
    assert cluster(["roll-over", "finish"]) == 0
    done = capsys.readouterr().out
    assert "of node n8 is withdrawn" in done
    assert done.count("fingerprint of the root") == 1
    server.join(server.token("n8"), "n8")


@pytest.mark.parametrize("command", ["cluster", "node"])
def test_help_loads_no_cryptography(command: str) -> None:
    code = f"from pliant.client.commands.{command} import main; main(['--help'])"
    loaded = {name.partition(".")[0] for name in loaded_modules(code)}
    assert loaded & {"cryptography", "grpc", "sqlalchemy", "rich", "yaml", "ssl"} == set()
