"""The command: its settings, its files, and that a node has one controller."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.client.cluster.process_table import start_time
from pliant.nodectl.daemon import main
from pliant.nodectl.settings import run_folder, state_folder
from testkit import fresh_modules, run_python, wait_until


def check(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    file = tmp_path / "node.yaml"
    file.write_text(text)
    code = main(["--config", str(file), "--check"])
    out, err = capsys.readouterr()
    return code, out + err.replace(f"pliant nodectl: {file}: ", "")


@pytest.mark.case(61)
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("slots: four", "slots: expected int, got str"),
        ("spare: perhaps", "spare: expected bool, got str"),
        ("slots: 0", "slots: expected a number from 1 to 1000000"),
        ("slotz: 4", "slotz: there is no such key"),
        ("transport: tcp", "transport: invalid enum value 'tcp'"),
        ("name: a/b", "name: expected letters, digits, '.', '_' and '-', at most 64"),
        ("address: 'x y'", "address: expected a host name or an address"),
        ("slots: 1\nslots: 2", "line 2: the key slots stands in line 1 already"),
        ("server: localhost", "server: expected HOST:PORT or unix:/PATH, got localhost"),
        ("server: h:99999999", "server: expected HOST:PORT or unix:/PATH, got h:99999999"),
        ("server: h:0", "server: h:0: expected a port from 1 to 65535"),
        ("server: ':1'", "server: expected HOST:PORT or unix:/PATH, got :1"),
        ('address_file: "/a\\0b"', "address_file: a zero byte cannot be part of it; remove it"),
        (
            'secret_file: "/\\ud800"',
            "secret_file: U+D800 is half of a character; write the whole one",
        ),
        ("slots: " + "[" * 5000, "line 1: nested deeper than 16 levels"),
        ('cluster: "a\\nb"', "cluster: 'a\\nb' has characters that cannot be printed"),
        ("- a", "expected keys and values, got list"),
        ("gres: {gpu: many}", "gres[...]: expected int, got str"),
        ("gres: {gpu: -1}", "gres.gpu: expected 0 to 1000000, got -1"),
        ("gres: {memory: 1}", "gres: 'memory' is no name; write letters, digits, '.', '_' and '-'"),
        (
            "properties: ['a b']",
            "properties: 'a b' is no property; write letters, digits, '.', '_' and '-'",
        ),
        (
            "memory: much",
            "memory: 'much' is not an amount of memory; write a number with a unit, as in 500M or "
            "4G (without a unit: megabytes)",
        ),
    ],
)
def test_a_wrong_setting_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, fault: str
) -> None:
    assert check(tmp_path, text, capsys) == (2, fault + "\n")


def test_an_interface_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = check(tmp_path, "interface: none7", capsys)
    assert (code, text.count("\n")) == (2, 1)
    assert text.startswith("interface: there is no network interface none7 here; there are: ")
    assert "lo" in text


def test_a_device_is_no_file_of_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", "/dev/zero", "--check"]) == 2
    assert "larger than" in capsys.readouterr().err


def test_right_settings_are_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = check(tmp_path, "name: n7\nslots: 3\nserver: localhost:1\n", capsys)
    assert (code, text) == (0, "node n7: 3 slots, settings are right\n")
    assert check(tmp_path, "", capsys)[0] == 0


def test_the_command_line_overrides_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node.yaml").write_text("name: n7\nslots: 3\n")
    assert main(["--config", str(tmp_path / "node.yaml"), "--slots", "9", "--check"]) == 0
    assert capsys.readouterr().out.startswith("node n7: 9 slots")


@pytest.mark.parametrize(
    ("text", "given", "spare"),
    [
        ("", [], False),
        ("spare: true\n", [], True),
        ("", ["--spare"], True),
        ("spare: true\n", ["--no-spare"], False),
    ],
)
def test_a_node_may_be_a_spare_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, given: list[str], *, spare: bool
) -> None:
    (tmp_path / "node.yaml").write_text(f"name: n7\nslots: 3\n{text}")
    assert main(["--config", str(tmp_path / "node.yaml"), *given, "--check"]) == 0
    kind = "spare node" if spare else "node"
    assert capsys.readouterr().out.startswith(f"{kind} n7: 3 slots")


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(tmp_path / "none"), "--check"]) == 2
    assert "cannot be read: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["launcher", "shim", "spool", "procfs"])
def test_what_forks_loads_no_grpc_and_no_threads(module: str) -> None:
    loaded = fresh_modules(f"import pliant.nodectl.{module}")
    assert not loaded & {"grpc", "google", "asyncio", "concurrent", "threading", "msgspec"}


@pytest.mark.cluster
def test_a_node_has_one_controller(server: FakeServer, node: Node) -> None:
    done = run_python(
        "-m", "pliant.nodectl", "--name", node.name, "--address-file", str(server.address_file),
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert node.process is not None
    text = f"node n1 has a controller already: process {node.process.pid} ({node.state})"
    assert text in done.stderr


@pytest.mark.cluster
def test_a_refused_node_says_why(server: FakeServer, state_dir: Path) -> None:
    server.refusal = "there is a node n9 already"
    node = Node("n9", server, state_dir)
    node.start(wait=False)
    assert node.process is not None
    assert node.process.wait(timeout=40) == 1
    assert "the server refused this node: there is a node n9 already" in node.log.read_text()


@pytest.mark.case(33)
@pytest.mark.cluster
def test_a_name_that_is_taken(server: FakeServer, node: Node, state_dir: Path) -> None:
    server.refusal, server.taken = "a node with this name is connected already", True
    second = Node("n9", server, state_dir)
    second.start(wait=False)
    assert second.process is not None
    assert second.process.wait(timeout=40) == 1
    assert "already; give this one another --name, or stop the other" in second.log.read_text()
    before = len(server.registrations)
    server.nodes.pop("n1").orders.put(None)
    wait_until(lambda: len(server.registrations) > before + 1)  # it is refused, and tries again
    server.refusal = ""
    wait_until(lambda: "n1" in server.nodes)
    assert node.process is not None
    assert node.process.poll() is None


def test_a_spool_that_is_a_file(state_dir: Path) -> None:
    spool = state_dir / "node-n1" / "spool"
    spool.parent.mkdir(parents=True)
    spool.touch()
    done = run_python("-m", "pliant.nodectl", "--name", "n1", check=False)
    assert done.returncode == 1
    assert f"{spool}: it is a file, where a folder belongs; move it away" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PLIANT_STATE_DIR", "~/state")
    monkeypatch.setenv("PLIANT_RUN_DIR", "~/run")
    assert (state_folder(), run_folder()) == (tmp_path / "state", tmp_path / "run")
    monkeypatch.delenv("PLIANT_RUN_DIR")
    assert run_folder() == tmp_path / "state" / "run"


@pytest.mark.cluster
def test_the_pid_file_tells_the_truth(node: Node) -> None:
    file = Path(os.environ["PLIANT_RUN_DIR"]) / "node-n1.pid"
    assert node.process is not None
    pid = node.process.pid
    assert file.read_text() == f"{pid} {start_time(pid)}\n"
    assert node.stop() == 0
    assert not file.exists()
    assert "jobs go on" in node.log.read_text()


@pytest.mark.cluster
def test_a_state_folder_with_a_long_path(
    server: FakeServer, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = state_dir / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    monkeypatch.setenv("PLIANT_STATE_DIR", str(deep))
    node = Node("n1", server, deep)
    node.start()
    world = World(["true"], deep / "out", type="uni")
    world.start(server)
    assert world.ends(server)[0].code == 0
    node.stop()


@pytest.mark.parametrize("number", ["1_0", " 3", "-1", "many", "9" * 5000])
def test_numbers_are_digits(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--slots", number, "--check"])
    assert "write digits" in capsys.readouterr().err


def test_a_node_is_described_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--memory", "64G", "--gres", "gpu:4,fpga", "--properties", "fast,a100", "--check"]
    assert main(words) == 0
    with pytest.raises(SystemExit):
        main(["--gres", "gpu:x", "--check"])
    assert "not a generic resource" in capsys.readouterr().err
