"""Settings and fixtures of every test."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from testkit.leaks import MARK, Leaks, describe, end, remove_segments, session_processes
from testkit.processes import SESSION_VARIABLES, variables

pytest_plugins = ["casekit.plugin"]

# Before any test starts a rank: one host, no network but loopback, the same transport everywhere.
os.environ["FI_TCP_IFACE"] = "lo"
os.environ["FI_PROVIDER"] = "^sockets"
os.environ["MPIR_CVAR_CH4_NETMOD"] = "ofi"
# Starting threads for linear algebra is a tenth of the start of a rank.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
# A line that a rank prints is one write, which the lines of other ranks cannot split.
os.environ.pop("PYTHONUNBUFFERED", None)
os.environ[MARK] = secrets.token_hex(8)

# A shell starts commands in the background with SIGINT ignored, and commands that tests start and
# interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A loaded machine is slow, which is no fault of the example; `timeout` bounds the whole test. A run
# is the same everywhere; `--hypothesis-profile explore` looks at other examples each time.
hypothesis.settings.register_profile(
    "pliant",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile("pliant")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse marked tests that `make system` would miss, because it searches files for the marks.

    Raises:
        pytest.UsageError: a file with such tests does not name the markers.
    """
    system = {"mpi", "cluster"}
    paths = {i.path for i in items if any(mark.name in system for mark in i.iter_markers())}
    for path in sorted(paths):
        if not re.search(r"mark\.(mpi|cluster)", path.read_text(encoding="utf-8")):
            raise pytest.UsageError(f"{path}: write pytest.mark.mpi or pytest.mark.cluster here")


@pytest.fixture(autouse=True, scope="session")
def _own_folders() -> Iterator[None]:
    """Keep every test away from a cluster that its user may be running."""
    base = Path(tempfile.mkdtemp(prefix="pliant-test-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIANT_STATE_DIR", str(base / "state"))
        patch.setenv("PLIANT_RUN_DIR", str(base / "run"))
        SESSION_VARIABLES.update(variables())
        yield
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(autouse=True, scope="session")
def _cached_entry_points() -> Iterator[None]:
    """Read the installed strategies once: nearly every test of the core loads one by its name.

    Reading them looks into every installed distribution. Processes that tests start do so as usual.
    """
    from importlib.metadata import entry_points

    from pliant.strategies import registry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", cache(entry_points))
        yield


@pytest.fixture
def state_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a state folder of this test's own; commands it starts use it, too.

    Its path is short, because the path of a unix socket has at most 107 characters.
    """
    base = Path(tempfile.mkdtemp(prefix="pliant-"))
    for name in ("state", "run"):
        (base / name).mkdir(mode=0o700)
        monkeypatch.setenv(f"PLIANT_{name.upper()}_DIR", str(base / name))
    yield base / "state"
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="session")
def workloads() -> Path:
    """Return the folder of recorded workloads, or skip the test."""
    folder = os.environ.get("PLIANT_WORKLOADS")
    if not folder:
        pytest.skip("PLIANT_WORKLOADS does not name a folder with recorded workloads")
    if not Path(folder).is_dir():
        pytest.skip(f"PLIANT_WORKLOADS names {folder}, which is not a folder")
    return Path(folder)


@pytest.fixture(autouse=True)
def _no_leaks(request: pytest.FixtureRequest, _own_folders: None) -> Iterator[None]:
    """Fail a test that leaves child processes or non-daemon threads behind.

    Tests that start ranks or daemons also answer for processes that were detached.
    """
    marks = {mark.name for mark in request.node.iter_markers()}
    leaks = Leaks(detached=bool(marks & {"mpi", "cluster"}))
    yield
    found = leaks.find()
    if found:
        pytest.fail("left behind:\n  " + "\n  ".join(found), pytrace=False)


@pytest.fixture(autouse=True, scope="session")
def _no_leaks_at_the_end() -> Iterator[None]:
    """Fail the last test when a fixture of a module or of the session left a process behind."""
    began = time.time()
    yield
    remove_segments(began)
    found = session_processes()
    lines = [describe(process) for process in found]
    for process in found:
        end(process)
    if lines:
        pytest.fail("left behind by a shared fixture:\n  " + "\n  ".join(lines), pytrace=False)
