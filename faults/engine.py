"""What a process does that was told to fail."""

import errno
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import NoReturn

from pliant.faults.orders import Order, OrderError, parse_orders

#: What of a rank's environment orders can ask for.
_OF_A_RANK = {
    "rank": "PMI_RANK",
    "role": "PLIANT_ROLE",
    "node": "PLIANT_NODE",
    "processor": "PLIANT_PROCESSOR",
    "job": "PLIANT_JOB",
}
#: The code of a process that a failpoint ended, or whose orders cannot be read.
EXIT_CODE = 70
_LONG_S = 3600.0


class FailpointReached(RuntimeError):
    """An order said ``raise``."""


class Trigger:
    """The orders of one process, and what it has counted."""

    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        """Read the orders; ``@FILE``: they are in a file, which is read anew at each failpoint.

        Raises:
            OrderError: they are not in the grammar.
        """
        self._file = text[1:] if text.startswith("@") else ""
        self._text = "" if self._file else text
        self._orders = parse_orders(self._text)
        self._who = {key: environ[name] for key, name in _OF_A_RANK.items() if name in environ}
        self._hits: Counter[Order] = Counter()
        self._lock = threading.Lock()
        self._full_until = 0.0  # the disk, on the monotonic clock

    def identify(self, **who: object) -> None:
        """Say who this process is."""
        self._who |= {key: str(value) for key, value in who.items()}

    def reach(self, name: str) -> int:
        """Do what the orders say about a place; how often a message there is to be handled."""
        try:
            with self._lock:
                due = [order for order in self._now() if order.name == name and self._is_due(order)]
        except OrderError as error:  # of the file, which has changed
            give_up(error)
        for order in due:
            self._carry_out(order)
        actions = {order.action for order in due}
        return 0 if "drop" in actions else 2 if "double" in actions else 1

    def write(self) -> None:
        """Do what a full disk does, while this process has one."""
        if time.monotonic() < self._full_until:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _now(self) -> tuple[Order, ...]:
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
        return not order.latch or _closes(order.latch)

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
                self._full_until = time.monotonic() + order.seconds
            case "hang":
                while True:
                    time.sleep(_LONG_S)


def _closes(latch: str) -> bool:
    """Whether this process is the one that makes the file; its id is in it."""
    try:
        handle = os.open(latch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return False
    os.write(handle, f"{os.getpid()}\n".encode())
    os.close(handle)
    return True


def start(text: str) -> Trigger:
    """Make the trigger of this process; orders that nobody understands end it."""
    try:
        return Trigger(text, os.environ)
    except OrderError as error:
        give_up(error)


def give_up(error: OrderError) -> NoReturn:
    """End a process that was told to fail in a way that nobody understands."""
    print(f"pliant: {error}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(EXIT_CODE)
