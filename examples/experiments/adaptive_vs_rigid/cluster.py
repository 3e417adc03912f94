"""The cluster of the real experiments, brought up and down by the commands of Pliant."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pliant.simulator.experiments.definition.definitions import ExperimentError

NODES, SLOTS = 4, 4
_PLIANT = (sys.executable, "-m", "pliant.client.commands.cli")


@contextmanager
def results_folder(folder: Path) -> Iterator[Path]:
    """Make the folder of the results, and keep other runs out of it within this context.

    Raises:
        ExperimentError: the folder cannot be used, or another run uses it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w", encoding="ascii")
    except OSError as error:
        raise ExperimentError(f"--results {folder}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ExperimentError(
                f"--results {folder}: another run uses this folder; wait for its end, or name "
                "another folder"
            ) from None
        yield folder.resolve()


@contextmanager
def cluster(
    folder: Path, strategy: str, *, nodes: int = NODES, slots: int = SLOTS
) -> Iterator[Path]:
    """Within this context, run a new cluster with a strategy.

    A cluster that a killed run has left in the folder is taken down first.

    Yields:
        A folder for the output of jobs. The environment names the cluster for `Client`.

    Raises:
        ExperimentError: the cluster cannot be brought up.
    """
    base = folder / "cluster"
    os.environ["PLIANT_STATE_DIR"] = str(base / "state")
    os.environ["PLIANT_RUN_DIR"] = str(base / "run")
    _remove(base)
    (base / "jobs").mkdir(parents=True)
    try:
        shape = ["--nodes", str(nodes), "--slots", str(slots), "--strategy", strategy]
        _pliant("up", "--detach", *shape)
        yield base / "jobs"
    finally:
        _remove(base)


def _remove(base: Path) -> None:
    if base.exists():
        _pliant("down")
        shutil.rmtree(base)


def _pliant(*words: str) -> None:
    done = subprocess.run(
        [*_PLIANT, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        # Ctrl-C ends this program, which then takes the cluster down in good order.
        start_new_session=True,
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise ExperimentError(f"pliant {words[0]} failed: {''.join(last)}")
