"""A host of its own, in which systemd runs services: a container over this host's file system.

The container sees the files of this host and keeps what it writes for itself, in memory. It has no
network but its own loopback interface. Its Pliant is this checkout, installed in /opt/pliant for an
interpreter of the system, because accounts in the container cannot reach the home of the tester.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from pliant.nodectl.host.cgroup import make_group
from pliant.nodectl.host.cgroup_hierarchies import own_group, parse_groups
from testkit import ROOT, wait_until

PREFIX = Path("/opt/pliant")
_PATH = f"{PREFIX}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_COMMANDS = ("pliant", "jobsub", "jobstat", "jobctl", "jobdel", "nodestat")
#: systemd powers the container off.
_POWER_OFF = signal.SIGRTMIN + 4
#: The longest time of a command.
_TIMEOUT_S = 90.0
_ENVIRONMENT = {"PATH": _PATH, "LANG": "C.UTF-8", "HOME": "/root"}


class Container:
    """Runs commands in a container that has booted.

    Attributes:
        root: its file system, seen from this host.
    """

    def __init__(self, root: Path, nspawn: int) -> None:
        self.root, self._nspawn = root, nspawn

    def first_process(self) -> int:
        """Return the first process in the container, 0 if there is none.

        While the container is made, processes that do that come before it.
        """
        children = Path(f"/proc/{self._nspawn}/task/{self._nspawn}/children").read_text()
        return int(children.split()[0]) if children else 0

    def run(
        self, *command: str, check: bool = True, timeout_s: float = _TIMEOUT_S, **variables: str
    ) -> str:
        """Run a command as root; return its output without blanks at its ends."""
        enter = ["nsenter", "-t", str(self.first_process()), "-a", "--"]
        environment = [f"{name}={value}" for name, value in (_ENVIRONMENT | variables).items()]
        done = subprocess.run(
            [*enter, "env", "-i", "--chdir=/tmp", *environment, *command],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if check else subprocess.DEVNULL,
            text=True,
            cwd="/",
            timeout=timeout_s,
        )
        assert done.returncode == 0 or not check, f"{command}: {done.stdout}"
        return done.stdout.strip()

    def run_as(self, account: str, *command: str, check: bool = True, **variables: str) -> str:
        """Run a command as an account."""
        words = ("runuser", "-u", account, "--", *command)
        return self.run(*words, check=check, timeout_s=_TIMEOUT_S, **variables)

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--value", "-p", name, unit)

    def journal(self, *words: str) -> str:
        """Return messages of the journal."""
        return self.run("journalctl", "--no-pager", "-q", *words)

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        inside = self.root / path.lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.write_text(text)


@contextmanager
def booted(options: Sequence[str] = ("--private-network",)) -> Iterator[Container]:
    """Yield a container; skip the test if this host cannot run one.

    Args:
        options: further options of `systemd-nspawn`, such as those of the network.
    """
    _check_host()
    base = Path(tempfile.mkdtemp(prefix="pliant-systemd-"))
    mounted: list[Path] = []
    try:
        _mount("tmpfs", "tmpfs", base, mounted)
        for name in ("upper", "work", "root"):
            (base / name).mkdir()
        layers = f"lowerdir=/,upperdir={base}/upper,workdir={base}/work"
        _mount("overlay", "overlay", base / "root", mounted, "-o", layers)
        _install(base / "root")
        yield from _boot(base, options)
    finally:
        for path in reversed(mounted):
            subprocess.run(["umount", "--lazy", path], check=False)
        shutil.rmtree(base, ignore_errors=True)


def _check_host() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a container")
    for program in ("systemd-nspawn", "nsenter", "unshare"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program} (systemd-container, util-linux)")
    if _system_python() is None:
        pytest.skip(f"the system has no {_python_name()}")
    for folder in (ROOT, Path(sys.prefix)):
        if any(folder.is_relative_to(hidden) for hidden in ("/tmp", "/var/tmp")):
            pytest.skip(f"units with PrivateTmp do not see {folder}: use a checkout elsewhere")


def _python_name() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _system_python() -> str | None:
    return shutil.which(_python_name(), path="/usr/local/bin:/usr/bin")


def _mount(kind: str, source: str, path: Path, mounted: list[Path], *options: str) -> None:
    command = ["mount", "-t", kind, *options, source, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount {kind}: {done.stderr.strip()}")
    mounted.append(path)


def _install(root: Path) -> None:
    """Install this checkout in a container, for all its accounts."""
    prefix = root / PREFIX.relative_to("/")
    shutil.rmtree(prefix, ignore_errors=True)
    (prefix / "bin").mkdir(parents=True)
    system = _system_python()
    assert system is not None
    (prefix / "bin" / "python").symlink_to(system)
    (prefix / "lib").symlink_to(Path(sys.prefix) / "lib")
    version = ".".join(map(str, sys.version_info[:3]))
    settings = f"home = {Path(system).parent}\ninclude-system-site-packages = false\n"
    (prefix / "pyvenv.cfg").write_text(f"{settings}version = {version}\n")
    for command in _COMMANDS:
        script = (Path(sys.prefix) / "bin" / command).read_text().partition("\n")[2]
        (prefix / "bin" / command).write_text(f"#!{PREFIX}/bin/python\n{script}")
        (prefix / "bin" / command).chmod(0o755)
    for path in (ROOT, Path(sys.prefix)):
        for folder in (path, *path.parents):
            inside = root / folder.relative_to("/")
            if inside.is_dir():
                inside.chmod(inside.stat().st_mode | 0o055)


def _make_groups(name: str) -> list[Path]:
    """Make a control group in each hierarchy, because systemd manages that in which it starts."""
    found = []
    for names, _ in parse_groups(Path("/proc/self/cgroup").read_text()):
        parent = own_group(min(names, default=""))
        if parent is not None and make_group(f"{parent.folder}/{name}"):
            found.append(Path(parent.folder, name))
    return found


def _enter(groups: list[Path]) -> None:
    for group in groups:
        (group / "cgroup.procs").write_text("0")


def _remove(groups: list[Path]) -> None:
    """Remove groups, when the last processes of the container have left them."""

    def removed() -> bool:
        for group in groups:
            for folder, _, _ in os.walk(group, topdown=False):
                with suppress(OSError):
                    os.rmdir(folder)
        return not any(group.exists() for group in groups)

    wait_until(removed, every=0.1, what="empty control groups")


def _boot(base: Path, more: Sequence[str]) -> Iterator[Container]:
    binds = {f"--bind-ro={path}" for path in (ROOT, Path(sys.prefix))}
    options = ["--register=no", "--keep-unit", "--quiet", *binds, *more]
    groups = _make_groups(base.name)
    with open(base / "log", "wb") as log:
        nspawn = subprocess.Popen(
            ["systemd-nspawn", *options, "--boot", f"--directory={base / 'root'}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=partial(_enter, groups),  # noqa: PLW1509 - xdist runs tests in the main thread
        )
    container = Container(base / "root", nspawn.pid)
    states = ("running", "degraded")

    def is_ready() -> bool:
        if nspawn.poll() is not None:
            pytest.skip(f"systemd-nspawn: {(base / 'log').read_text().strip()[-300:]}")
        state = container.run("systemctl", "is-system-running", check=False)
        return state in states

    try:
        wait_until(is_ready, every=0.2, what="systemd in the container")
        yield container
    finally:
        try:
            if nspawn.poll() is None and (first := container.first_process()):
                os.kill(first, _POWER_OFF)
            nspawn.wait(60)
        except subprocess.TimeoutExpired:
            nspawn.kill()
            nspawn.wait()
        # systemd-nspawn has made the same group in the hierarchy that is named systemd.
        _remove([*groups, *Path("/sys/fs/cgroup").glob(f"*/{base.name}")])
