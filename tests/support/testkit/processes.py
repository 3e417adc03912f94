"""Running fresh interpreters, and finding processes."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from pliant.nodectl.host import procfs

#: Of the MPI library that the ranks of tests use.
MPIEXEC = str(Path(sysconfig.get_path("scripts")) / "mpiexec")
#: The environment in which a test starts, filled when the first test does.
SESSION_VARIABLES: dict[str, str] = {}


def variables() -> dict[str, str]:
    """Return the environment without the variables in which pytest names the test that runs."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}


def run_python(
    *args: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60.0,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with arguments; a bad exit fails the test and shows both streams."""
    done = subprocess.run(
        [sys.executable, *args],
        env={**os.environ, **(env or {})},
        cwd=cwd,
        timeout=timeout,
        check=False,
        capture_output=True,
        text=True,
    )
    if check and done.returncode != 0:
        raise AssertionError(
            f"python {' '.join(args)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return done


def mpiexec(size: int, argv: Sequence[str], timeout: float = 100.0) -> str:
    """Run a Python program on so many ranks; return what it prints."""
    done = subprocess.run(
        [MPIEXEC, "-n", str(size), sys.executable, *argv],
        timeout=timeout,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(argv)} ended with {done.returncode}\n{done.stderr}")
    return done.stdout


def children(process: psutil.Process, *, recursive: bool = False) -> list[psutil.Process]:
    """Return the children of a process, or all its descendants; also those nobody has collected.

    The kernel lists them. `psutil` reads about every process of the machine instead, which takes
    7 ms, and tests ask often.
    """
    found = []
    for pid in (procfs.descendants if recursive else procfs.children)(process.pid):
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def with_variable(name: str) -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """Yield each living process that has a variable in its environment, with its environment."""
    wanted = f"{name}=".encode()
    for pid in procfs.processes():
        try:
            text = Path(f"/proc/{pid}/environ").read_bytes()
            if wanted not in text:
                continue
            process = psutil.Process(pid)
        except (psutil.Error, OSError):
            continue  # it has ended, or belongs to somebody else
        pairs = (entry.partition("=") for entry in os.fsdecode(text).split("\0"))
        environment = {key: value for key, _, value in pairs}
        if name in environment:
            yield process, environment


def fresh_modules(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded when some code is done."""
    return {name.partition(".")[0] for name in loaded_modules(code)}


def loaded_modules(code: str) -> set[str]:
    """Return the full names of all modules that a fresh interpreter has loaded after some code."""
    report = "atexit.register(lambda: print('loaded:', *sys.modules, file=sys.stderr))"
    done = run_python("-c", f"import atexit, sys\n{report}\n{code}", check=False)
    for line in done.stderr.splitlines():
        if line.startswith("loaded:"):
            return set(line.split()[1:])
    raise AssertionError(f"no list of modules from: {code}\n{done.stderr}")
