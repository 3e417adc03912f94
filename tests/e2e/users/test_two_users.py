"""Alice and bob use one cluster: bob sees and changes nothing of her job but what is public."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from helperkit import ACCOUNT, ALICE, BOB, Site, needs_root
from pliant.client.api import Client
from pliant.client.client_errors import RequestError
from pliant.client.terminal.alternate_screen import AlternateScreen
from pliant.server.authorisation.privacy import PUBLIC
from testkit import ROOT, wait_until
from userkit import run_as

pytestmark = [needs_root, pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(400)]

PROGRAM = str(ROOT / "tests" / "e2e" / "apps" / "bargaining.py")
SECRET = "only-for-alice"


@pytest.fixture(name="site", scope="module")
def _site() -> Iterator[Site]:
    made = Site()
    try:
        made.up()
        yield made
    finally:
        made.close()


@pytest.fixture(name="job", scope="module")
def _job(site: Site) -> int:
    """Return a malleable job of alice that runs on two processors."""
    folder = site.output / SECRET
    folder.mkdir()
    os.chown(folder, ALICE, ALICE)
    job = site.as_user(ALICE).submit(
        site.python,
        PROGRAM,
        str(folder),
        json.dumps({}),
        sizes="1-3",
        prefer=2,
        type="mpi",
        stdout=str(folder / "out"),
        chdir=str(folder),
        env={**os.environ, "SECRET": SECRET},
    )
    site.wait(ALICE, job, lambda state, held: (state, held) == ("RUNNING", 2), "two processors")
    wait_until((folder / "steps").exists, what="its first step", timeout=60)
    return job


def condition(site: Site, job: int) -> tuple[object, ...]:
    """Return what a request of bob could have changed."""
    found = site.as_user(ALICE).job(job)
    return found.state, found.held, found.run, found.priority


CHANGES: dict[str, Callable[[Client, int], Any]] = {
    "cancel": lambda client, job: client.cancel(job),
    "hold": lambda client, job: client.hold(job),
    "release": lambda client, job: client.release(job),
    "suspend": lambda client, job: client.suspend(job),
    "resume": lambda client, job: client.resume_job(job),
    "requeue": lambda client, job: client.requeue(job),
    "resize": lambda client, job: client.resize(job, 1),
    "why": lambda client, job: client.why(job),
    "history": lambda client, job: client.history(job),
}


@pytest.mark.parametrize("change", CHANGES)
def test_bob_cannot_act_on_the_job_of_alice(site: Site, job: int, change: str) -> None:
    before = condition(site, job)
    with pytest.raises(RequestError, match=f"job {job} belongs to alice"):
        CHANGES[change](site.as_user(BOB), job)
    assert condition(site, job) == before


def test_bob_sees_public_values_only(site: Site, job: int) -> None:
    bob, alice = site.as_user(BOB), site.as_user(ALICE)
    for found in (bob.job(job), *bob.jobs(ended=True)):
        shown = {key: value for key, value in asdict(found).items() if value not in ("", None)}
        assert set(shown) <= PUBLIC | {"class_"}
        assert SECRET not in json.dumps(shown)
    assert bob.job(job).state == "RUNNING"
    assert SECRET in json.dumps(asdict(alice.job(job)))
    assert all(event.job is None for event in bob.history())


def pliant(command: str, *words: str) -> tuple[int, str]:
    """Run a command in this process, and return its exit code and output."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            code = importlib.import_module(f"pliant.client.{command}").main(words)
        except SystemExit as end:
            code = int(end.code or 0)
    return code, text.getvalue()


def watch_once() -> str:
    """Return the first picture of ``jobstat --watch``."""
    pictures: list[str] = []

    def leave(_: AlternateScreen, text: str) -> None:
        pictures.append(text)
        raise KeyboardInterrupt

    AlternateScreen.draw = leave  # type: ignore[assignment,method-assign]
    pliant("commands.jobstat", "--watch")
    return pictures[0]


@pytest.fixture
def as_bob(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands of other accounts find the server."""
    monkeypatch.setenv("PLIANT_RUN_DIR", str(site.users))
    monkeypatch.setenv("PLIANT_SERVER_USER", str(ACCOUNT))


@pytest.mark.usefixtures("as_bob")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("commands.jobstat", []),
        ("commands.jobstat", ["--all", "JOB"]),
        ("commands.jobstat", ["--json", "JOB"]),
        ("gantt.gantt_command", []),
        ("commands.jobctl", ["refused", "--json"]),
        ("commands.nodestat", ["--json"]),
    ],
    ids=str,
)
def test_commands_of_bob_show_nothing_private(job: int, command: str, words: list[str]) -> None:
    typed = [str(job) if word == "JOB" else word for word in words]
    code, text = run_as(BOB, partial(pliant, command, *typed))
    assert code == 0, text
    assert SECRET not in text


@pytest.mark.usefixtures("as_bob", "job")
def test_watching_shows_nothing_private() -> None:
    text = run_as(BOB, watch_once)
    assert "RUNNING" in text
    assert SECRET not in text


def read(path: Path) -> bytes:
    return path.read_bytes()


def test_the_kernel_keeps_bob_from_the_processes_of_alice(site: Site, job: int) -> None:
    ranks = [
        each.pid
        for each in psutil.process_iter(["cmdline", "environ"])
        if PROGRAM in (each.info["cmdline"] or ())
        and any(str(site.run) in value for value in (each.info["environ"] or {}).values())
    ]
    assert len(ranks) >= 2
    for pid in ranks:
        with pytest.raises(AssertionError, match="PermissionError"):
            run_as(BOB, partial(read, Path(f"/proc/{pid}/environ")))
    with pytest.raises(AssertionError, match="PermissionError"):
        run_as(BOB, partial(list_folder, site.run / "jobs" / f"{job}.1"))


def list_folder(path: Path) -> list[str]:
    return [each.name for each in path.iterdir()]


def test_alice_can_do_all_of_it(site: Site, job: int) -> None:
    alice = site.as_user(ALICE)

    def resized() -> bool:
        with contextlib.suppress(RequestError):  # the strategy may be resizing it
            alice.resize(job, 1)
        return alice.job(job).held == 1

    wait_until(resized, what="one processor", timeout=90, every=0.5)
    assert alice.why(job).text
    alice.cancel(job)
    site.wait(ALICE, job, lambda state, _: state == "CANCELLED", "its end")
