"""The functions that the code calls at failpoints. In production each only tests a variable."""

import os
from typing import Protocol


class _Trigger(Protocol):
    """Carries out the orders of ``PLIANT_FAILPOINTS``; see `pliant.faults.failpoint_actions`."""

    def reach(self, name: str) -> int:
        """Carry out the orders of a failpoint.

        Returns:
            How often the message at this place is handled: 0 if it is dropped, 2 if repeated.
        """

    def write(self) -> None:
        """Raise OSError (ENOSPC) while a ``full-disk`` order of this process is in effect."""

    def identify(self, **who: object) -> None:
        """Set the properties of this process, which orders can name to select it."""


def _from_environment() -> _Trigger | None:
    text = os.environ.get("PLIANT_FAILPOINTS", "")
    if not text:
        return None
    from pliant.faults.failpoint_actions import start

    return start(text)


_trigger = _from_environment()
_ONCE = range(1)


def failpoint(name: str) -> None:
    """Carry out the orders for this failpoint, if there are any.

    Args:
        name: one of `registry.POINTS`.

    Raises:
        FailpointReached: the order is ``raise``.
    """
    if _trigger is not None:
        _trigger.reach(name)


def message(name: str) -> range:
    """Carry out the orders for this failpoint; return how often to handle the message, as a range.

    Use it as ``for _ in message("server.answer.in"): ...`` around the handling of the message.

    Args:
        name: one of `registry.POINTS` that can do ``drop`` or ``double``.

    Raises:
        FailpointReached: the order is ``raise``.
    """
    return _ONCE if _trigger is None else range(_trigger.reach(name))


def writing() -> None:
    """Fail like a full disk if an order says so; call this before each write to the disk.

    Raises:
        OSError: a ``full-disk`` order is in effect (ENOSPC).
    """
    if _trigger is not None:
        _trigger.write()


def active() -> bool:
    """Return whether this process has orders for failpoints.

    Callers test this before they compute the name of a failpoint.
    """
    return _trigger is not None


def identify(**who: object) -> None:
    """Add properties of this process, which orders can name to select it."""
    if _trigger is not None:
        _trigger.identify(**who)
