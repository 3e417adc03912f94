"""An interpreter that every account may execute, with the packages of this one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_SETTINGS = """home = {home}
include-system-site-packages = false
version = {version}
"""


def python_for_all(folder: Path) -> str:
    """Return an interpreter for other accounts; skip the test if there is none.

    The interpreter of the tests may be in the home of its account. Then another one of the same
    version, which the system has, gets the packages of the first.
    """
    if _works(sys.executable):
        return sys.executable
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    system = shutil.which(name, path="/usr/local/bin:/usr/bin")
    if system is not None:
        target = folder / "python"
        if not target.exists():
            (target / "bin").mkdir(parents=True)
            (target / "bin" / name).symlink_to(system)
            (target / "lib").symlink_to(Path(sys.prefix) / "lib")
            settings = _SETTINGS.format(home=Path(system).parent, version=sys.version.split()[0])
            (target / "pyvenv.cfg").write_text(settings)
        if _works(str(target / "bin" / name)):
            return str(target / "bin" / name)
    pytest.skip("other accounts cannot execute an interpreter with Pliant here")


def _works(python: str) -> bool:
    code = f"""
import os
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
os.execv({python!r}, [{python!r}, "-I", "-c", "import pliant.nodectl.world_folder"])
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    return done.returncode == 0
