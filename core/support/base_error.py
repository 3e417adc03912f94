"""The base class of all errors that Pliant raises on purpose, and their stable codes."""

from __future__ import annotations

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
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
        cls.code = code or _with_hyphens(cls.__name__.strip("_").removesuffix("Error"))

    def __reduce__(self) -> tuple[Any, ...]:
        """Let errors with several constructor arguments be copied and pickled.

        By default Python would call the constructor again, with the finished text.
        """
        return _remake, (type(self), self.args, self.__dict__)


def _with_hyphens(name: str) -> str:
    """Return the words of a class name in lower case: ``NoMPILibrary`` is ``no-mpi-library``.

    A regular expression would take as long as the import of all errors of the client.
    """
    letters = [name[:1]]
    for before, letter, after in zip(name, name[1:], name[2:] + "A", strict=False):
        if letter.isupper() and (not before.isupper() or after.islower()):
            letters.append("-")
        letters.append(letter)
    return "".join(letters).lower()


def _remake(kind: type[PliantError], args: tuple[Any, ...], state: dict[str, Any]) -> PliantError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
