"""The run directory is gone, as after a cleaner of /tmp or of /run: the jobs are not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.commands import Said, run_command
from pliant.client.api import Client
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(150)]


@pytest.fixture(name="job")
def _job(state_dir: Path, tmp_path: Path) -> Iterator[int]:
    """Return a job of two processes that ends with code 3 once there is a gate; nothing else is."""
    done("pliant", "up", "--detach", "--nodes", "1", "--slots", "2")
    wait = f"while [ ! -e '{tmp_path / 'gate'}' ]; do sleep 0.1; done; exit 3"
    said = done("jobsub", "-n", "2", "--output", "/dev/null", "sh", "-c", f"sleep 600 & {wait}")
    wait_until(lambda: "RUNNING" in done("jobstat", said.out.strip()).out, what="it runs")
    shutil.rmtree(state_dir.parent / "run")
    yield int(said.out)
    done("pliant", "down")


def done(*words: str) -> Said:
    said = run_command(*words, timeout=100)
    assert said.code == 0, said
    return said


def code_of(job: int) -> int | None:
    with Client() as client:
        return client.wait(job).exit_code


def test_up_again_takes_its_jobs_over(job: int, tmp_path: Path) -> None:
    assert run_command("jobstat", str(job)).code == 3
    done("pliant", "up", "--detach")
    assert "RUNNING" in done("jobstat", str(job)).out
    (tmp_path / "gate").touch()
    assert code_of(job) == 3


def test_down_leaves_jobs_for_the_next_up_when_it_is_to(job: int, tmp_path: Path) -> None:
    assert f"1 job goes on ({job})" in done("pliant", "down", "--keep-jobs").out
    (tmp_path / "gate").touch()
    done("pliant", "up", "--detach")
    assert code_of(job) == 3


def test_down_ends_what_it_cannot_cancel_and_names_it(job: int) -> None:
    said = done("pliant", "down")
    assert f"1 job could not be cancelled ({job})" in said.err
    assert "all is gone" in said.out
