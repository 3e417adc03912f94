"""Named threads that report when they end by an error."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pliant.core.support.base_error import PliantError

log = logging.getLogger(__name__)


class ReportedError(PliantError, code="reported"):
    """An error that ends a thread and was logged already, so that no traceback is needed."""


def uncancellable_future() -> Future[Any]:
    """Return a future that cannot be cancelled.

    An event loop that stops cancels the futures that its tasks wait for. The thread that later sets
    the result of a cancelled future would fail.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def start_thread(
    name: str, work: Callable[[], None], on_fault: Callable[[str], None]
) -> threading.Thread:
    """Start and return a daemon thread with a name that ``ps -T`` shows.

    Args:
        name: the name of the thread, also in the kernel, where ``ps -T`` shows it.
        work: the function that the thread runs.
        on_fault: is called with the name if ``work`` raises.
    """

    def run() -> None:
        _name_in_kernel(name)
        try:
            work()
        except ReportedError:
            on_fault(name)
        except BaseException:
            log.critical("thread %s ended by an error", name, exc_info=True)
            on_fault(name)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def thread_pool(name: str, size: int) -> ThreadPoolExecutor:
    """Return a pool of at most ``size`` threads with a name that ``ps -T`` shows.

    Callers should not use the pool of their event loop instead. It starts up to 32 threads, one for
    each call that finds no idle thread.
    """
    return ThreadPoolExecutor(
        size, thread_name_prefix=name, initializer=_name_in_kernel, initargs=(name,)
    )


def _name_in_kernel(name: str) -> None:
    """Set the thread's name in the kernel, for ``ps -T`` and ``top -H``."""
    try:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
    except OSError:
        pass  # no /proc: the name stays inside Python
