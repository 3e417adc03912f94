"""The base class of all errors that Pliant raises on purpose, and their stable codes."""

import re
from typing import Any, ClassVar


class PliantError(Exception):
    """Base of every error that a user or a program may have to handle.

    The wording of a message may change from one release to the next. The code of its class does
    not: programs and tests compare ``error.code``. docs/errors.md lists all codes.
    """

    #: Stable name of the kind of error, such as "no-server".
    code: ClassVar[str] = "pliant"

    def __init_subclass__(cls, code: str = "", **more: object) -> None:
        """Set the code: as given, or made from the class name (``NoServerError``: "no-server")."""
        super().__init_subclass__(**more)
        words = re.findall("[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", cls.__name__.removesuffix("Error"))
        cls.code = code or "-".join(words).lower()

    def __reduce__(self) -> tuple[Any, ...]:
        """Let errors with several constructor arguments be copied and pickled.

        By default Python would call the constructor again, with the finished text.
        """
        return _remake, (type(self), self.args, self.__dict__)


def _remake(kind: type[PliantError], args: tuple[Any, ...], state: dict[str, Any]) -> PliantError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
