"""The files for systemd: what each role gets, how they are installed, and that systemd takes them.

That the daemons run under systemd is tested by tests/e2e/test_systemd.py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pliant.deploy.deploy_command import main
from pliant.deploy.unit_files import ROLES, Installation, fill_in, make_files
from pliant.nodectl.settings import load
from pliant.server.config import load_config

INSTALLATION = Installation("/opt/pliant/bin/pliant", "/opt/pliant/bin/python")


def install(folder: Path, *options: str) -> dict[str, str]:
    """Install files, and return what was done with each of them."""
    assert main(["units", "--output", str(folder), *options]) == 0
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("role", "unit", "others"),
    [
        ("server", "pliant-server", {"server.yaml", "client.yaml"}),
        ("node", "pliant-nodectl", {"node.yaml"}),
        ("helper", "pliant-helper", set()),
        ("login-agent", "pliant-login-agent", {"client.yaml"}),
        ("metrics", "pliant-metrics", set()),
    ],
)
def test_a_role_gets_its_unit_and_settings(
    role: str, unit: str, others: set[str], tmp_path: Path
) -> None:
    found = install(tmp_path, "--role", role)
    units = {Path(path).name for path in found if path.startswith("systemd/")}
    settings = {Path(path).name for path in found if path.startswith("pliant/")}
    assert units == {"pliant.target", f"{unit}.service"}
    assert settings == {"daemon.env", *others}
    assert {"sysusers.d/pliant.conf", "tmpfiles.d/pliant.conf"} <= set(found)


def test_every_word_is_filled_in_and_the_printed_files_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = install(tmp_path)
    capsys.readouterr()
    assert main(["units", "--print"]) == 0
    printed = capsys.readouterr().out
    for path, text in found.items():
        assert not re.search(r"@[A-Z]+@", text)
        assert f"# /etc/{path}\n{text}" in printed


def test_settings_are_kept_and_units_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path)
    edited = {"pliant/server.yaml": "kept", "systemd/system/pliant.target": "replaced"}
    for path in edited:
        (tmp_path / path).write_text("# edited\n")
    capsys.readouterr()
    found = install(tmp_path)
    done = dict(line.split()[::-1] for line in capsys.readouterr().out.splitlines()[:-3])
    assert {path: done[str(tmp_path / path)] for path in edited} == edited
    assert found["pliant/server.yaml"] == "# edited\n"
    assert "Pliant" in found["systemd/system/pliant.target"]
    assert set(done.values()) == {"unchanged", "kept", "replaced"}


def test_the_settings_are_right(tmp_path: Path) -> None:
    found = install(tmp_path, "--listen", "127.0.0.1:7000", "--writable", "/shared/check points")
    config = load_config(tmp_path / "pliant/server.yaml")
    assert (config.listen, config.users) == ("127.0.0.1:7000", "all")
    assert load(str(tmp_path / "pliant/node.yaml"), {}).helper == "/run/pliant/helper.sock"
    unit = found["systemd/system/pliant-server.service"]
    assert 'ReadWritePaths="/shared/check points"\n' in unit


@pytest.mark.parametrize(
    "options", [["--listen", "unix:/x"], ["--listen", "a"], ["--writable", "x"]]
)
def test_wrong_options_are_refused(options: list[str], tmp_path: Path) -> None:
    assert main(["units", "--output", str(tmp_path / "etc"), *options]) == 2
    assert not (tmp_path / "etc").exists()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert main(["units", "--output", str(tmp_path / "file")]) == 1


def test_words_of_systemd_in_a_path_are_escaped() -> None:
    text = fill_in("ExecStart=@PLIANT@ x\n", Installation("/opt/a b%c$d/pliant", "/python"))
    assert text == 'ExecStart="/opt/a b%%c$$d/pliant" x\n'


def test_the_root_helper_is_isolated() -> None:
    (unit,) = (file for file in make_files(["helper"], INSTALLATION) if "helper" in file.path)
    assert "ExecStart=/opt/pliant/bin/python -I -m pliant.nodectl.root_helper\n" in unit.text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_no_fault(tmp_path: Path) -> None:
    install(tmp_path)
    units = sorted((tmp_path / "systemd/system").iterdir())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    # Unknown options are warnings only.
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert len(units) == len(ROLES) + 1
