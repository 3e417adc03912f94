"""The wheelhouse: what is read of wheels, and what hosts get."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploykit.wheels import write_wheel
from pliant.client.client_errors import ClientError
from pliant.deploy.deploy_command import main
from pliant.deploy.on_host.release_environments import COMPILED, install_environment
from pliant.deploy.wheelhouse import default_requirement, pack_wheels, read_wheelhouse
from testkit import ROOT

NEEDS = 'Requires-Dist: Num_Py>=2\nRequires-Dist: other; extra == "x"\n'


def test_a_wheel_is_read_with_what_it_always_needs(tmp_path: Path) -> None:
    metadata = f"Metadata-Version: 2.1\nName: tool\n{NEEDS}\ntext\n"
    write_wheel(tmp_path, "tool", "1", {"tool.py": "x = 1\n", "INFO/METADATA": metadata})
    (tmp_path / "README").touch()
    (wheel,) = read_wheelhouse(str(tmp_path))
    assert (wheel.distribution, wheel.version, set(wheel.needs)) == ("tool", "1", {"num-py"})
    assert wheel.unpacked_bytes > len(metadata)


@pytest.mark.parametrize("name", ["", "tool.whl", "tool-1-py3-none-any.whl"])
def test_a_folder_without_good_wheels_is_refused(name: str, tmp_path: Path) -> None:
    if name:
        (tmp_path / name).write_text("no archive")
    with pytest.raises(ClientError, match="wheel"):
        read_wheelhouse(str(tmp_path))
    with pytest.raises(ClientError):
        read_wheelhouse(str(tmp_path / "missing"))


def test_compiled_modules_are_used_on_the_host(tmp_path: Path) -> None:
    files = {"tool/__init__.py": "value = 7\n", "bad.py": "no python\n"}
    write_wheel(tmp_path, "tool", "1", files)
    (wheel,) = read_wheelhouse(str(tmp_path))
    wheels = {wheel.file: wheel.sha256}
    archive = pack_wheels(str(tmp_path), wheels, compiled=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        file = tar.extractfile(COMPILED)
        assert file is not None
        assert zipfile.ZipFile(io.BytesIO(file.read())).namelist() == ["tool/__init__.py"]
    arguments = {"prefix": str(tmp_path / "p"), "environment": "env-1", "wheels": wheels}
    install_environment(arguments, io.BytesIO(archive))
    python = tmp_path / "p/env-1/bin/python"
    code = "import tool, json; print(json.dumps([tool.value, tool.__file__, tool.__cached__]))"
    # The source is not looked at: a module that was compiled on the host would be compiled again.
    (source,) = (tmp_path / "p").rglob("tool/__init__.py")
    source.write_text("value = 8\n")
    value, path, cached = json.loads(subprocess.check_output([python, "-c", code], text=True))
    assert (value, path) == (7, str(source))
    assert Path(cached).exists()


def test_the_wheel_of_a_checkout_is_made_from_the_checkout() -> None:
    assert Path(default_requirement()) == ROOT


@pytest.mark.parametrize(
    "options", [["--python", "3"], ["--glibc", "new"], ["--python", "3.12; x"]]
)
def test_wrong_versions_are_refused(options: list[str], tmp_path: Path) -> None:
    assert main(["wheels", str(tmp_path / "w"), *options]) == 2
    assert not (tmp_path / "w").exists()
