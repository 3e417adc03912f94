"""Carry out the orders of ``PLIANT_FAILPOINTS`` in one process.

A failpoint is a named place in the code. An order says what happens when a process reaches one,
such as to end the process or to drop a message.
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
    """The error that the order ``raise`` causes at a failpoint, a named place in the code."""


class Trigger:
    """Carries out the failpoint orders of one process, and counts how often each order applied.

    A failpoint is a named place in the code. An order says what happens there, such as ``kill``.
    """

    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        """Read the failpoint orders of a process.

        Args:
            text: the orders, as in ``PLIANT_FAILPOINTS``; or ``@FILE``, to read them from this file
                each time a failpoint is reached.
            environ: the environment of the process, whose variables tell its rank, node and job.

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
        """Add properties of this process, such as ``node="n1"``.

        An order with ``@node=n1`` is carried out only in processes that have this property.
        """
        self._who |= {key: str(value) for key, value in who.items()}

    def reach(self, name: str) -> int:
        """Carry out the orders for the failpoint ``name``, which this process has just reached.

        Returns:
            How often the caller must handle the message at this place: 0 if an order drops it, 2 if
            an order doubles it, otherwise 1.
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

    def before_write(self) -> None:
        """Raise the error of a full disk (OSError, ENOSPC) if a ``full-disk`` order is in effect.

        Called before each write. The order is in effect for the number of seconds that it names.
        """
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
    """Create the file of an order with ``once=FILE``; return False if it exists already.

    The process that creates the file, and no other one, carries out the order.
    """
    try:
        handle = os.open(latch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return False
    os.write(handle, f"{os.getpid()}\n".encode())
    os.close(handle)
    return True


def make_trigger(text: str) -> Trigger:
    """Parse the failpoint orders in ``text``, and return the object that carries them out.

    If an order is malformed, this process ends with a message.
    """
    try:
        return Trigger(text, os.environ)
    except FailpointOrderError as error:
        exit_on_error(error)


def exit_on_error(error: FailpointOrderError) -> NoReturn:
    """End this process with a message and status 70, because a failpoint order is malformed."""
    print(f"pliant: {error}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(EXIT_CODE)
