"""Small values, equal on every process, that follow the job through every resize."""

import pickle
from typing import Any

from pliant.appkit.membership import Membership

#: Attributes of a state that are no values.
_OWN = ("_membership", "_values")


class State:
    """Named values: ``s.name`` reads and assigns. At a resize those of rank 0 count for all.

    The names are those given to ``job.state``; another one raises ``AttributeError``. The values
    must be picklable: one that is not makes the resize fail, and the job goes on at its size.
    """

    def __init__(self, membership: Membership, values: dict[str, Any]) -> None:
        """Make a state; see ``Job.state``.

        Raises:
            ValueError: a name is one of the handle's own.
        """
        for name in values:
            if name in _OWN or name in dir(State):
                raise ValueError(f"job.state: {name!r} is a name of its own: choose another one")
        object.__setattr__(self, "_membership", membership)
        object.__setattr__(self, "_values", dict(values))

    def __getattr__(self, name: str) -> Any:
        # Only called where the usual search fails; copy and pickle look for names of their own.
        values = self.__dict__.get("_values")
        if values is None or name not in values:
            raise AttributeError(f"job.state has no {name!r}; it has {sorted(values or ())}")
        self._membership.check()
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._values:
            raise AttributeError(f"job.state has no {name!r}: name it in job.state(...)")
        self._membership.check()
        self._values[name] = value

    def __dir__(self) -> list[str]:
        return sorted(self._values)

    def __repr__(self) -> str:
        return f"State({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


class StateEntry:
    """The library's side of a state."""

    def __init__(self, state: State) -> None:
        """Wrap a state."""
        self._state = state

    def names(self) -> list[str]:
        """The names it was made with."""
        return sorted(self._state.__dict__["_values"])

    def values(self) -> dict[str, Any]:
        """The present values."""
        values: dict[str, Any] = self._state.__dict__["_values"]
        return values

    def replace(self, values: dict[str, Any]) -> None:
        """Take over the values of rank 0."""
        self._state.__dict__["_values"].update(values)


def pack(states: list[StateEntry]) -> bytes:
    """All states of rank 0, in order.

    Raises:
        Exception: a value cannot be pickled; whatever pickle raises.
    """
    return pickle.dumps([entry.values() for entry in states], pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes) -> list[dict[str, Any]]:
    """The values of packed states, in order.

    Raises:
        Exception: whatever the values' own unpickling raises.
    """
    values: list[dict[str, Any]] = pickle.loads(data)
    return values
