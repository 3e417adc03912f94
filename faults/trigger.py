"""The call that stands in the code. In production it is one look at a variable."""

import os
from typing import Protocol


class _Trigger(Protocol):
    def reach(self, name: str) -> int: ...

    def write(self) -> None: ...

    def identify(self, **who: object) -> None: ...


def _from_environment() -> _Trigger | None:
    text = os.environ.get("PLIANT_FAILPOINTS", "")
    if not text:
        return None
    from pliant.faults.engine import start

    return start(text)


_trigger = _from_environment()
_ONCE = range(1)


def failpoint(name: str) -> None:
    """Fail here, if this process was told to.

    Args:
        name: one of `registry.POINTS`.

    Raises:
        FailpointReached: the order is ``raise``.
    """
    if _trigger is not None:
        _trigger.reach(name)


def message(name: str) -> range:
    """Fail here, if this process was told to, or have a message come not at all or twice.

    ``for _ in message("server.answer.in"): ...`` is around what is done with the message.

    Args:
        name: one of `registry.POINTS` that can do ``drop`` or ``double``.

    Raises:
        FailpointReached: the order is ``raise``.
    """
    return _ONCE if _trigger is None else range(_trigger.reach(name))


def writing() -> None:
    """Say that something is about to be written to the disk, which may have been told to be full.

    Raises:
        OSError: it is (ENOSPC), as the system would say.
    """
    if _trigger is not None:
        _trigger.write()


def active() -> bool:
    """Whether this process was told to fail anywhere: where a name has to be looked for first."""
    return _trigger is not None


def identify(**who: object) -> None:
    """Say who this process is, for orders that are meant for one of several."""
    if _trigger is not None:
        _trigger.identify(**who)
