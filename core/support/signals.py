"""Signals by name, as Linux numbers them on all processors that Pliant runs on.

The core may not import the module ``signal``.
"""

import re

_NUMBERS = {
    **{"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8},
    **{"KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15},
    **{"CHLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23},
    **{"XCPU": 24, "XFSZ": 25, "VTALRM": 26, "PROF": 27, "WINCH": 28, "IO": 29, "PWR": 30},
    "SYS": 31,
}
_NAMES = {number: name for name, number in _NUMBERS.items()}
_FORM = re.compile(r"(?:SIG)?([A-Z][A-Z0-9]*|[0-9]{1,2})", re.ASCII)
#: The highest number of a signal.
LAST = 64
#: Signals that no program can catch: KILL and STOP.
NEVER_CAUGHT = (9, 19)


def parse_signal(text: str) -> int:
    """Return the number of a signal that a text names: ``USR1``, ``SIGUSR1``, ``usr1`` or ``10``.

    Raises:
        ValueError: the text names no signal.
    """
    match = _FORM.fullmatch(text.upper())
    word = match[1] if match else ""
    number = int(word) if word.isdigit() else _NUMBERS.get(word, 0)
    if not 1 <= number <= LAST:
        raise ValueError(f"{text!r:.40} is no signal: write a name or a number, as in USR1 or 10")
    return number


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number if it has none."""
    return _NAMES.get(number, str(number))
