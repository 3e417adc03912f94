"""The program's hooks, called; and what is said of an exception that ends the job."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

#: Characters of an exception's own text that are repeated to people beside the traceback.
LONGEST_TEXT = 300


@dataclass(frozen=True, slots=True)
class ResizeInfo:
    """What hooks are told about a resize."""

    #: Its number; 0: the job goes on from a checkpoint.
    resize: int
    #: Processes before it.
    before: int
    #: Processes after it, as planned if it was not committed.
    after: int
    #: In ``before_resize``: this process will leave.
    leaving: bool = False
    #: In ``after_resize``: it was carried out; else the job is as it was.
    committed: bool = False


def call(kind: str, hooks: Iterable[Callable[[ResizeInfo], object]], change: ResizeInfo) -> None:
    """Call hooks of one kind (``before_resize``, ``after_resize``).

    Raises:
        Exception: whatever a hook raises, with a note that names it and says what helps.
    """
    for hook in hooks:
        try:
            hook(change)
        except Exception as error:
            name = getattr(hook, "__qualname__", type(hook).__name__).rpartition("<locals>.")[2]
            error.add_note(
                f"raised by the {kind} hook {name!r} at a change from {change.before} to "
                f"{change.after}: catch it there; a hook cannot stop a resize, on_offer can"
            )
            raise


def check_callable(where: str, given: object) -> None:
    """Pass what can be called.

    Raises:
        TypeError: it cannot; it would end the job when it is called for the first time.
    """
    if not callable(given):
        raise TypeError(
            f"{where}: {given!r} is no function: write the function's name, or a lambda"
        )


def format_error(error: BaseException) -> str:
    """An exception in one line, for ``jobctl why``: its type, text and notes."""
    text = " ".join(str(error).split())
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}..."
    named = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return "; ".join([named, *getattr(error, "__notes__", ())])
