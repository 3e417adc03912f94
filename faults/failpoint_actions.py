"""Carry out the orders of ``PLIANT_FAILPOINTS`` in one process.

An order says what happens at a failpoint, such as to end the process or to drop a message.
"""

import errno
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import NoReturn

from pliant.faults.failpoints_variable import FailpointOrderError, Order, parse_orders

#: Variables of a rank by the keys with which orders select processes.
_RANK_VARIABLES = {
    "rank": "PMI_RANK",
    "role": "PLIANT_ROLE",
    "node": "PLIANT_NODE",
    "processor": "PLIANT_PROCESSOR",
    "job": "PLIANT_JOB",
}
#: Exit code of a process that a failpoint ended, or whose orders are malformed.
EXIT_CODE = 70
_HANG_SLEEP_S = 3600.0


class FailpointReached(RuntimeError):
    """Raised at a failpoint whose order is ``raise``."""


class Trigger:
    """The orders of one process, and how often each failpoint was reached."""

    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        """Read the orders; if ``text`` is ``@FILE``, read them from that file at each failpoint.

        Raises:
            FailpointOrderError: an order is malformed.
        """
        self._file = text[1:] if text.startswith("@") else ""
        self._text = "" if self._file else text
        self._orders = parse_orders(self._text)
        self._who = {key: environ[name] for key, name in _RANK_VARIABLES.items() if name in environ}
        self._hits: Counter[Order] = Counter()
        self._lock = threading.Lock()
        self._disk_full_until = 0.0  # the disk, on the monotonic clock

    def identify(self, **who: object) -> None:
        """Add properties of this process, which orders can name to select it."""
        self._who |= {key: str(value) for key, value in who.items()}

    def reach(self, name: str) -> int:
        """Carry out the orders for a failpoint; return how often its message is to be handled.

        1 without an order, 0 if the message is dropped, 2 if it is doubled.
        """
        try:
            with self._lock:
                due = [
                    order
                    for order in self._current_orders()
                    if order.name == name and self._is_due(order)
                ]
        except FailpointOrderError as error:  # the file was changed
            exit_on_error(error)
        for order in due:
            self._carry_out(order)
        actions = {order.action for order in due}
        return 0 if "drop" in actions else 2 if "double" in actions else 1

    def write(self) -> None:
        """Raise OSError (ENOSPC) while a ``full-disk`` order of this process is in effect."""
        if time.monotonic() < self._disk_full_until:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _current_orders(self) -> tuple[Order, ...]:
        if not self._file:
            return self._orders
        try:
            with open(self._file, encoding="utf-8") as file:
                text = file.read()
        except OSError:
            text = ""
        if text != self._text:
            self._orders, self._text = parse_orders(text), text
            self._hits.clear()
        return self._orders

    def _is_due(self, order: Order) -> bool:
        if any(self._who.get(key) != value for key, value in order.who):
            return False
        self._hits[order] += 1
        if self._hits[order] <= order.after:
            return False
        if order.once and self._hits[order] > order.after + 1:
            return False
        return not order.latch or _create_latch(order.latch)

    def _carry_out(self, order: Order) -> None:
        line = f"pliant: failpoint {order.name}: {order.action} (process {os.getpid()})\n"
        os.write(2, line.encode())
        match order.action:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "exit":
                os._exit(EXIT_CODE)
            case "raise":
                raise FailpointReached(order.name)
            case "delay":
                time.sleep(order.seconds)
            case "full-disk":
                self._disk_full_until = time.monotonic() + order.seconds
            case "hang":
                while True:
                    time.sleep(_HANG_SLEEP_S)


def _create_latch(latch: str) -> bool:
    """Create a latch file with the process id; return False if it exists already."""
    try:
        handle = os.open(latch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return False
    os.write(handle, f"{os.getpid()}\n".encode())
    os.close(handle)
    return True


def start(text: str) -> Trigger:
    """Return the trigger of this process; end the process if the orders are malformed."""
    try:
        return Trigger(text, os.environ)
    except FailpointOrderError as error:
        exit_on_error(error)


def exit_on_error(error: FailpointOrderError) -> NoReturn:
    """End this process because of a malformed order."""
    print(f"pliant: {error}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(EXIT_CODE)
