"""The recipe of the Debian package: its scripts know all units, and wrong input is named.

A package is built and installed by tests/e2e/hosts/test_debian_package.py.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pliant.deploy.unit_files import ROLES
from testkit import ROOT

RECIPE = ROOT / "deploy/packaging/debian"
UNITS = {Path(name).stem for files in ROLES.values() for name, _ in files if "service" in name}


@pytest.mark.parametrize("script", ["postinst", "prerm"])
def test_maintainer_scripts_know_every_unit(script: str) -> None:
    (line,) = [each for each in (RECIPE / script).read_text().splitlines() if "units=" in each]
    assert set(line.partition("=")[2].strip('"').split()) == UNITS


@pytest.mark.parametrize("script", ["build", "preinst", "postinst", "prerm", "postrm"])
def test_scripts_are_portable_shell(script: str) -> None:
    assert subprocess.run(["sh", "-n", RECIPE / script], check=False).returncode == 0


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs Debian's Python")
def test_wrong_wheelhouses_are_named(tmp_path: Path) -> None:
    assert "expected: build WHEELS OUTPUT" in build()
    assert "has no wheel of Pliant" in build(tmp_path, tmp_path / "out")
    for version in ("1.0", "1.1"):
        (tmp_path / f"pliant-{version}-py3-none-any.whl").touch()
    assert "several wheels of Pliant" in build(tmp_path, tmp_path / "out")
    assert "expected an interpreter of Debian" in build(tmp_path, tmp_path / "out", "/bin/false")
    assert not (tmp_path / "out").exists()


def build(*words: str | Path) -> str:
    """Return the error of a build that is refused."""
    command = ["sh", RECIPE / "build", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    return done.stderr
