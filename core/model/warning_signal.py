"""A signal that the processes of a job get some time before its time limit: ``USR1@60``."""

import re
from typing import NamedTuple

from pliant.core.support.input_limits import MAX_DURATION_S

_FORM = re.compile(r"(?:SIG)?([A-Z][A-Z0-9+]*|[0-9]{1,2})@([0-9]{1,9}(?:\.[0-9]{1,6})?)")


#: Signals by name, as Linux numbers them on all processors that Pliant runs on. The core may not
#: import the module ``signal``.
_NUMBERS = {
    **{"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13},
    **{"ALRM": 14, "TERM": 15, "CHLD": 17, "CONT": 18, "TSTP": 20, "URG": 23, "XCPU": 24},
    **{"WINCH": 28, "IO": 29, "PWR": 30},
}
_NAMES = {number: name for name, number in _NUMBERS.items()}
#: KILL and STOP cannot be caught.
_NEVER_CAUGHT = (9, 19)
_LAST = 64


class WarningSignal(NamedTuple):
    """A signal to send to a job, and how many seconds before its time limit."""

    number: int
    before_s: float

    def __str__(self) -> str:
        return f"{_NAMES.get(self.number, self.number)}@{self.before_s:g}"


def parse_warning(text: str) -> WarningSignal:
    """Return the signal and the time of a text such as ``USR1@60``, in seconds.

    Raises:
        ValueError: the text is not in this grammar, or names no signal that can be caught.
    """
    match = _FORM.fullmatch(text.upper())
    if match is None:
        raise ValueError(f"{text!r}: write SIGNAL@SECONDS, as in USR1@60")
    name, seconds = match.groups()
    number = int(name) if name.isdigit() else _NUMBERS.get(name, 0)
    if not 1 <= number <= _LAST or number in _NEVER_CAUGHT:
        raise ValueError(f"{text!r}: {name} is no signal that a program can catch")
    if not 0 < float(seconds) <= MAX_DURATION_S:
        raise ValueError(f"{text!r}: expected more than 0 s")
    return WarningSignal(number, float(seconds))
