"""The functions that the code calls at failpoints. In production each only tests a variable."""

import os
from typing import Protocol


class _Trigger(Protocol):
    """The interface of the object that carries out the failpoint orders of this process.

    `pliant.faults.failpoint_actions` implements it. It is imported only if there are orders.
    """

    def reach(self, name: str) -> int:
        """Carry out the orders for the failpoint ``name``.

        Returns:
            How often the message at this place is handled: 0 if it is dropped, 2 if repeated, else
            1.
        """

    def before_write(self) -> None:
        """Raise the error of a full disk (OSError) if a ``full-disk`` order is in effect now."""

    def identify(self, **who: object) -> None:
        """Add properties of this process, such as its node, by which orders select processes."""


def _from_environment() -> _Trigger | None:
    text = os.environ.get("PLIANT_FAILPOINTS", "")
    if not text:
        return None
    from pliant.faults.failpoint_actions import make_trigger

    return make_trigger(text)


_trigger = _from_environment()
_ONCE = range(1)


def failpoint(name: str) -> None:
    """Do what ``PLIANT_FAILPOINTS`` orders for this place in the code; nothing without an order.

    Args:
        name: one of `registry.POINTS`.

    Raises:
        FailpointReached: the order is ``raise``.
    """
    if _trigger is not None:
        _trigger.reach(name)


def message(name: str) -> range:
    """Carry out the orders for this failpoint; return a range: how often to handle the message.

    The range has one element. It is empty if an order drops the message, and has two elements if an
    order doubles it. Use it as ``for _ in message("server.answer.in"): ...`` around the handling of
    the message.

    Args:
        name: one of `registry.POINTS` that can do ``drop`` or ``double``.

    Raises:
        FailpointReached: the order is ``raise``.
    """
    return _ONCE if _trigger is None else range(_trigger.reach(name))


def before_write() -> None:
    """Raise the error of a full disk if a failpoint order demands it; call this before each write.

    Raises:
        OSError: a ``full-disk`` order is in effect (ENOSPC).
    """
    if _trigger is not None:
        _trigger.before_write()


def active() -> bool:
    """Return whether ``PLIANT_FAILPOINTS`` was set when this process started.

    Callers test this before they compute the name of a failpoint.
    """
    return _trigger is not None


def identify(**who: object) -> None:
    """Add properties of this process, such as its node, by which orders select processes."""
    if _trigger is not None:
        _trigger.identify(**who)
