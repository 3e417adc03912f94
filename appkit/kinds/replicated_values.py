"""``job.state``: small values that are equal on every process."""

from typing import Any

from pliant.appkit.appkit_errors import StateError
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.serialization import decode, encode

#: Attributes of a state that are not values.
_OWN = ("_membership", "_values")


class State:
    """Named values: ``s.name`` reads and assigns. A resize sends the values of rank 0 to all.

    The names are those given to ``job.state``; any other raises ``AttributeError``. The values
    may be scalars, text, numpy arrays, containers of these, or picklable objects. A value that
    cannot be sent makes the resize fail, and the job continues at its size.
    """

    def __init__(self, membership: Membership, values: dict[str, Any]) -> None:
        """Create the handle for values given by name; programs call ``Job.state`` instead.

        Raises:
            ValueError: A value has the name of an attribute or method of the handle.
        """
        for name in values:
            if name in _OWN or name in dir(State):
                raise ValueError(f"job.state: {name!r} is a name of its own: choose another one")
        object.__setattr__(self, "_membership", membership)
        object.__setattr__(self, "_values", dict(values))

    def __getattr__(self, name: str) -> Any:
        # Called only if the attribute does not exist. copy and pickle look for names of their own.
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
    """What a job stores for one call of ``job.state``; the program uses the handle `State`."""

    def __init__(self, state: State) -> None:
        """Manage ``state``, the handle that the program uses."""
        self._state = state

    def names(self) -> list[str]:
        """Return the names given to ``job.state``."""
        return sorted(self._state.__dict__["_values"])

    def values(self) -> dict[str, Any]:
        """Return the present values by name: the dict itself, not a copy."""
        values: dict[str, Any] = self._state.__dict__["_values"]
        return values

    def check(self) -> None:
        """Check that all values can be sent to other processes and stored in checkpoints.

        Raises:
            StateError: A value cannot be pickled.
        """
        for name, value in self.values().items():
            try:
                encode([value])
            except Exception as error:  # pickle raises any type
                kind = type(value).__qualname__
                raise StateError(
                    f"the value of {name!r} in job.state, a {kind}, cannot be pickled: "
                    f"{type(error).__name__}: {error}. Keep it outside job.state, and make it "
                    "again where it is needed"
                ) from error

    def replace(self, values: dict[str, Any]) -> None:
        """Replace the values by ``values``, which rank 0 has sent or a checkpoint contains."""
        self._state.__dict__["_values"].update(values)


def pack(states: list[StateEntry]) -> bytes:
    """Return the values of all calls of ``job.state`` as bytes, in the order of registration.

    Raises:
        StateError: A value cannot be stored; the message names it.
    """
    names = [list(entry.values()) for entry in states]
    values = [value for entry in states for value in entry.values().values()]
    try:
        return encode([names, *values])
    except Exception:  # pickle raises any type
        for entry in states:
            entry.check()
        raise


def unpack(data: bytes) -> list[dict[str, Any]]:
    """Return the values of each call of ``job.state`` from the bytes that `pack` made.

    Args:
        data: The bytes of a process of this job, or of a checkpoint with a verified signature.

    Raises:
        Exception: The unpickling of a value raised it.
    """
    names, *values = decode(data)
    each = iter(values)
    return [{name: next(each) for name in own} for own in names]
