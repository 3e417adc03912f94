"""An update of a job must find its row as this server left it; else nothing is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.core.model.jobs import Job, JobSpec, JobType
from pliant.core.model.lifecycle import JobState
from pliant.core.values.ids import JobId
from pliant.core.values.sizes import Sizes
from pliant.server.database.compare_and_set import RowVersions
from pliant.server.database.engine import open_database, open_reader
from pliant.server.database.reader import Reader
from pliant.server.database.statements import insert_job, put_meta
from pliant.server.database.writer import ChangedElsewhereError, Writer
from pliant.server.registry.job_program import Program
from serverkit import Server
from testkit import wait_until

BY_HAND = ["state = 'RUNNING'", "run = 2", "epoch = 1"]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    engine = open_database(tmp_path / "pliant.db")
    faults: list[str] = []
    writer = Writer(engine)
    writer.start(faults.append)
    yield writer
    writer.stop()
    engine.dispose()
    assert faults == []


def new_job(number: int, uid: int = 0) -> Job:
    spec = JobSpec(JobId(number), "job", "ann", JobType.MPI, Sizes((1,)), 1.0, uid=uid)
    return Job(spec, JobState.PENDING)


PROGRAM = Program(("true",), {}, "/", "", "", "", 0o022)


def stored(writer: Writer, standing: RowVersions, *numbers: int) -> list[Job]:
    """Jobs as they are when they have been accepted."""
    jobs = [new_job(number) for number in numbers]
    writer.commit([insert_job(job, PROGRAM, None) for job in jobs]).result(30)
    for job in jobs:
        standing.remember_submitted(job.spec, held=False)
    return jobs


def states(path: Path) -> list[str]:
    with sqlite3.connect(path) as base:
        return [row[0] for row in base.execute("SELECT state FROM job ORDER BY id")]


def test_each_user_has_keys_of_its_own(writer: Writer, tmp_path: Path) -> None:
    jobs = [new_job(1, uid=7), new_job(2, uid=8)]
    writer.commit([insert_job(job, PROGRAM, "same") for job in jobs]).result(30)
    engine = open_reader(tmp_path / "pliant.db")
    reader = Reader(engine)
    assert [reader.job_with_key(uid, "same") for uid in (7, 8, 9)] == [1, 2, None]
    assert reader.job_with_key(7, "another") is None
    engine.dispose()


def test_a_job_goes_from_state_to_state(writer: Writer, tmp_path: Path) -> None:
    standing = RowVersions()
    (job,) = stored(writer, standing, 1)
    for state, epoch in ((JobState.STARTING, 1), (JobState.RUNNING, 1), (JobState.RUNNING, 2)):
        job.state, job.epoch = state, epoch
        writer.commit([standing.compare_and_set(job)]).result(30)
        assert states(tmp_path / "pliant.db") == [state.value]


@pytest.mark.parametrize("by_hand", BY_HAND)
def test_what_was_changed_elsewhere_is_not_overwritten(
    writer: Writer, tmp_path: Path, by_hand: str
) -> None:
    standing, path = RowVersions(), tmp_path / "pliant.db"
    jobs = stored(writer, standing, 1, 2, 3)
    with sqlite3.connect(path) as base:
        base.execute(f"UPDATE job SET {by_hand} WHERE id = 2")
    before = states(path)
    for job in jobs:
        job.state = JobState.CANCELLED
    changes = [put_meta("with", "them"), *map(standing.compare_and_set, jobs)]
    with pytest.raises(ChangedElsewhereError, match=r"left them: 1, 2, 3; does something else"):
        writer.commit(changes).result(30)
    assert states(path) == before  # all or nothing


def test_a_server_that_finds_another_hand_in_its_database_ends(server: Server) -> None:
    node = server.controller().welcome()
    with server.user() as user:
        job = user.submit(sizes="1", hold=True)
        with sqlite3.connect(server.state / "pliant.db") as base:
            base.execute("UPDATE job SET epoch = 7 WHERE id = ?", (job,))
        with pytest.raises(ConnectionError):
            user.do("cancel", ids=[job])
    process = server.process
    assert process is not None
    wait_until(lambda: process.poll() is not None, what="the server has ended")
    node.close()
    assert process.returncode != 0
    assert "does something else write to it?" in server.log()
    assert "Traceback" not in server.log()
    assert states(server.state / "pliant.db") == ["HELD"]
