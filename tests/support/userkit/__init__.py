"""Functions that run as another account of this machine, in a child process; needs root."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import tempfile
import traceback
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
    """Return what a function returns in a child process of another account.

    The modules that it imports must have been imported before: the account may be unable to read
    the files of this checkout.
    """
    with held_as(uid, function) as result:
        return result


@contextmanager
def held_as(uid: int, function: Callable[[], T]) -> Iterator[T]:
    """Yield what a function returns in a child process, which lives until the block ends.

    So sockets that the function opens, and keeps in a global or a closure, stay open.
    """
    result_in, result_out = os.pipe()
    end_in, end_out = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(result_in)
        os.close(end_out)
        _child(uid, function, result_out, end_in)
    os.close(result_out)
    os.close(end_in)
    try:
        with os.fdopen(result_in, "rb") as pipe:
            content = pipe.read()
        if not content:
            raise ChildFailedError("the child process ended without a result")
        failed, value = pickle.loads(content)
        if failed:
            raise ChildFailedError(value)
        yield value
    finally:
        os.close(end_out)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _child(uid: int, function: Callable[[], object], result: int, end: int) -> None:
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os.environ.update(HOME="/nonexistent", USER=str(uid), LOGNAME=str(uid))
        try:
            content = pickle.dumps((False, function()))
        except BaseException:
            content = pickle.dumps((True, traceback.format_exc()))
        with os.fdopen(result, "wb") as pipe:
            pipe.write(content)
        os.read(end, 1)  # the parent closes it
    finally:
        os._exit(0)


@contextmanager
def open_folder() -> Iterator[Path]:
    """Yield a new folder that other accounts can enter, unlike ``tmp_path``."""
    path = Path(tempfile.mkdtemp(prefix="pliant-users-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)
