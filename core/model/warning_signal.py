"""A signal that a job gets before its time limit: ``USR1@60`` sends SIGUSR1 60 s before it."""

import re
from typing import NamedTuple

from pliant.core.support.input_limits import MAX_DURATION_S
from pliant.core.support.signals import NEVER_CAUGHT, parse_signal, signal_name

_FORM = re.compile(r"(?:SIG)?([A-Z][A-Z0-9]*|[0-9]{1,2})@([0-9]{1,9}(?:\.[0-9]{1,6})?)")


class WarningSignal(NamedTuple):
    """A signal to send to a job, and how many seconds before its time limit."""

    number: int
    before_s: float

    def __str__(self) -> str:
        return f"{signal_name(self.number)}@{self.before_s:g}"


def parse_warning(text: str) -> WarningSignal:
    """Return the signal and the time in seconds of a text such as ``USR1@60``.

    Raises:
        ValueError: the text is not of this form, or names no signal that can be caught.
    """
    match = _FORM.fullmatch(text.upper())
    if match is None:
        raise ValueError(f"{text!r}: write SIGNAL@SECONDS, as in USR1@60")
    name, seconds = match.groups()
    number = parse_signal(name)
    if number in NEVER_CAUGHT:
        raise ValueError(f"{text!r}: {name} is no signal that a program can catch")
    if not 0 < float(seconds) <= MAX_DURATION_S:
        raise ValueError(f"{text!r}: expected more than 0 s")
    return WarningSignal(number, float(seconds))
