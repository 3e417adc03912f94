"""Call the program's resize hooks, and describe an exception that ends the job."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

#: Number of characters of an exception's text that are shown in addition to the traceback.
MAX_TEXT_LENGTH = 300


@dataclass(frozen=True, slots=True)
class ResizeInfo:
    """A resize, as the hooks of a program (``before_resize``, ``after_resize``) get it."""

    #: Number of the resize; 0 if the job continues from a checkpoint.
    resize: int
    #: Number of processes before the resize.
    before: int
    #: Number of processes after the resize, even if it was not committed.
    after: int
    #: In ``before_resize``: whether this process will leave.
    leaving: bool = False
    #: In ``after_resize``: whether the resize was carried out. If not, the job is unchanged.
    committed: bool = False


def call(kind: str, hooks: Iterable[Callable[[ResizeInfo], object]], info: ResizeInfo) -> None:
    """Call the program's hooks of one kind, ``before_resize`` or ``after_resize``, in order.

    Raises:
        Exception: an exception of a hook, with a note that names the hook and what to do.
    """
    for hook in hooks:
        try:
            hook(info)
        except Exception as error:
            name = getattr(hook, "__qualname__", type(hook).__name__).rpartition("<locals>.")[2]
            error.add_note(
                f"raised by the {kind} hook {name!r} at a change from {info.before} to "
                f"{info.after}: catch it there; a hook cannot stop a resize, on_offer can"
            )
            raise


def check_callable(where: str, given: object) -> None:
    """Check, when a hook is registered, that it can be called.

    Without this check, the first call of the hook would end the job.

    Args:
        where: the method that got the hook, for the error.
        given: the hook.

    Raises:
        TypeError: the hook cannot be called.
    """
    if not callable(given):
        raise TypeError(
            f"{where}: {given!r} is no function: write the function's name, or a lambda"
        )


def format_error(error: BaseException) -> str:
    """Return an exception in one line, for ``jobctl why``: its type, text and notes."""
    text = " ".join(str(error).split())
    if len(text) > MAX_TEXT_LENGTH:
        text = f"{text[:MAX_TEXT_LENGTH]}..."
    named = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return "; ".join([named, *getattr(error, "__notes__", ())])
