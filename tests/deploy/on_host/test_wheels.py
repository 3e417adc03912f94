"""Wheels are installed as the format says, and a damaged one is refused."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploykit.wheels import write_wheel
from pliant.deploy.on_host.host_error import HostError
from pliant.deploy.on_host.release_environments import install_environment
from pliant.deploy.on_host.wheels import WheelInstaller

FILES = {
    "tool/__init__.py": "def run():\n    print('it runs')\n    return 3\n",
    "tool-1.data/scripts/old": "#!python\nprint('a script')\n",
    "tool-1.data/data/share/text": "data\n",
    "tool-1.data/headers/tool.h": "header\n",
    "tool-1.data/purelib/other.py": "",
    "INFO/entry_points.txt": "[console_scripts]\nTool = tool:run [extra]\n[x]\na = b:c\n",
}


def archive(*wheels: Path) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for wheel in wheels:
            tar.add(wheel, wheel.name)
    buffer.seek(0)
    return buffer


def request(prefix: Path, *wheels: Path) -> dict[str, object]:
    digests = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in wheels}
    return {"prefix": str(prefix), "environment": "env-1", "wheels": digests}


def test_an_environment_has_modules_commands_and_data(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "tool", "1", FILES)
    prefix = tmp_path / "prefix"
    install_environment(request(prefix, wheel), archive(wheel))
    env = prefix / "env-1"
    done = subprocess.run([env / "bin/Tool"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "it runs\n")
    assert subprocess.check_output([env / "bin/old"]) == b"a script\n"
    assert (env / "share/text").read_text() == "data\n"
    assert (env / "include/tool.h").exists()
    subprocess.run([env / "bin/python", "-c", "import other"], check=True)
    # A second time, nothing is sent and nothing is done.
    install_environment(request(prefix, wheel), io.BytesIO())


def test_a_wheel_that_changed_on_its_way_leaves_no_environment(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "tool", "1", FILES)
    prefix = tmp_path / "prefix"
    arguments = request(prefix, wheel)
    arguments["wheels"] = {wheel.name: "00"}
    with pytest.raises(HostError, match="changed"):
        install_environment(arguments, archive(wheel))
    assert not (prefix / "env-1").exists()
    with pytest.raises(HostError, match="did not arrive"):
        install_environment(request(prefix, wheel), archive())


@pytest.mark.parametrize(
    ("path", "text"),
    [("tool/__init__.py", "changed"), ("tool/more.py", "not in the record"), ("../x", "outside")],
)
def test_a_file_that_does_not_match_the_record_is_refused(
    path: str, text: str, tmp_path: Path
) -> None:
    wheel = write_wheel(tmp_path, "tool", "1", FILES)
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, old in {**content, path: text.encode()}.items():
            archive.writestr(name, text if name == path else old)
    with pytest.raises(HostError, match="damaged"):
        WheelInstaller(str(tmp_path / "env"), str(tmp_path / "site")).install(
            wheel.name, wheel.read_bytes()
        )
    assert not (tmp_path / "x").exists()


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="damaged"):
        WheelInstaller(str(tmp_path), str(tmp_path)).install("x.whl", b"no zip")
