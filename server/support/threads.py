"""Named threads whose end by an error is never silent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pliant.core.support.errors import PliantError

log = logging.getLogger(__name__)


class ReportedError(PliantError, code="reported"):
    """Ends a thread; what it means has been logged where it was found."""


def uncancellable_future() -> Future[Any]:
    """A future that cannot be cancelled.

    A loop that ends under one who waits would cancel it, and break the thread that keeps it.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def start_thread(
    name: str, work: Callable[[], None], on_fault: Callable[[str], None]
) -> threading.Thread:
    """Start a thread that carries its name in the kernel too, and reports an unexpected end."""

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


def _name_in_kernel(name: str) -> None:
    """Let ``ps -T`` and ``top -H`` show which thread works."""
    try:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
    except OSError:
        pass  # no /proc: the name stays inside Python
