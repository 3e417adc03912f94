"""Functions that run as another account of this machine, in a child process; needs root."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

#: Two accounts. They need no entry in the user database, unless a test says so.
ALICE, BOB = 5001, 5002

#: Marks tests that need real accounts.
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can run processes under other user ids"
)


class ChildFailedError(AssertionError):
    """The function failed in the child process; the text is its traceback."""


def run_as(uid: int, function: Callable[[], T]) -> T:
    """Return what a function of a module returns in a child process of another account."""
    with held_as(uid, function) as result:
        return result


@contextmanager
def held_as(uid: int, function: Callable[[], T]) -> Iterator[T]:
    """Yield what a function returns in a child process, which lives until the block ends.

    So sockets that the function opens, and keeps in a global, stay open. The child process starts
    anew, because a fork of this one, which may have threads of gRPC, could hang or crash.

    Args:
        uid: of the account.
        function: a function of a module, or a ``partial`` of one.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "userkit", str(uid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        pickle.dump(function, child.stdin)
        child.stdin.flush()
        try:
            failed, value = pickle.load(child.stdout)
        except EOFError:
            raise ChildFailedError("the child process ended without a result") from None
        if failed:
            raise ChildFailedError(value)
        yield value
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


@contextmanager
def open_folder() -> Iterator[Path]:
    """Yield a new folder that other accounts can enter, unlike ``tmp_path``."""
    path = Path(tempfile.mkdtemp(prefix="pliant-users-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)
