"""Parse the orders in ``PLIANT_FAILPOINTS``.

::

    orders = order [";" order]...
    order  = NAME ["@" KEY "=" VALUE]... "=" ACTION [":" SECONDS] ["," option]...
             (SECONDS after delay and full-disk)
    option = "after=N"     do nothing the first N times
           | "once"        once in each process
           | "once=FILE"   once in all processes together, including later ones: the process that
                           creates FILE carries out the order
"""

import difflib
import re
from dataclasses import dataclass

from pliant.faults.registry import POINTS

VARIABLE = "PLIANT_FAILPOINTS"

#: Properties by which orders select processes.
KEYS = ("rank", "role", "node", "processor", "job")

#: ``kill``: SIGKILL; ``freeze``: SIGSTOP; ``exit``: at once, code 70; ``raise``: an exception;
#: ``delay``: wait some seconds; ``hang``: this thread waits for ever. Where a message is handled or
#: sent: ``drop``: it is lost; ``double``: it is handled twice. Where a file is written:
#: ``full-disk``: for some seconds, all writes of this process fail with ENOSPC.
ACTIONS = ("kill", "freeze", "exit", "raise", "delay", "hang", "drop", "double", "full-disk")
#: Actions that are not possible at every failpoint, and the reason.
RESTRICTED = {
    "drop": "no message that can be lost is handled or sent here",
    "double": "no message is handled or sent here",
    "full-disk": "nothing is about to be written here",
}
_TIMED = ("delay", "full-disk")

_POINTS = {point.name: point for point in POINTS}
_ORDER = re.compile(
    r"(?P<name>[^=@]+)"
    r"(?P<who>(?:@[^=@]+=[^=@,]*)*)"
    r"=(?P<action>[^=@,:]+)"
    r"(?::(?P<seconds>[^,]*))?"
    r"(?P<options>(?:,.*)?)"
)


class FailpointOrderError(ValueError):
    """A malformed order in ``PLIANT_FAILPOINTS``; the text has the order and the expected form."""


@dataclass(frozen=True, slots=True)
class Order:
    """One failpoint order: what happens at which failpoint, in which processes, and how often."""

    name: str
    action: str
    seconds: float = 0.0
    #: The process must have all of these properties.
    who: tuple[tuple[str, str], ...] = ()
    after: int = 0
    once: bool = False
    #: File that the only process that carries out the order creates; empty if each process does.
    latch: str = ""


def parse_orders(text: str) -> tuple[Order, ...]:
    """Parse the value of ``PLIANT_FAILPOINTS``, and return its orders.

    Raises:
        FailpointOrderError: an order is malformed.
    """
    return tuple(_parse(part.strip()) for part in text.split(";") if part.strip())


def _parse(text: str) -> Order:
    match = _ORDER.fullmatch(text)
    if match is None:
        raise _error(text, "expected NAME=ACTION")
    name, action = match["name"], match["action"]
    if name not in _POINTS:
        close = difflib.get_close_matches(name, _POINTS, n=1)
        raise _error(text, f"there is no failpoint {name}" + (f"; {close[0]}?" if close else ""))
    if action not in ACTIONS:
        raise _error(text, f"action {action}: expected one of {', '.join(ACTIONS)}")
    if action in RESTRICTED and action not in _POINTS[name].extra_actions:
        raise _error(text, f"{name} cannot {action}: {RESTRICTED[action]}")
    who = tuple(_selector(text, part) for part in match["who"].split("@")[1:])
    order = Order(name, action, _seconds(text, action, match["seconds"]), who)
    for option in match["options"].split(",")[1:]:
        order = _with_option(text, order, option)
    return order


def _selector(text: str, part: str) -> tuple[str, str]:
    key, _, value = part.partition("=")
    if key not in KEYS:
        raise _error(text, f"@{key}: expected one of {', '.join(KEYS)}")
    return key, value


def _seconds(text: str, action: str, word: str | None) -> float:
    if action not in _TIMED:
        if word is not None:
            raise _error(text, f"{action} takes no number")
        return 0.0
    try:
        seconds = float(word or "")
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e6:
        raise _error(text, f"expected {action}:SECONDS")
    return seconds


def _with_option(text: str, order: Order, option: str) -> Order:
    word, equals, value = option.partition("=")
    after, once, latch = order.after, order.once, order.latch
    if word == "after" and value.isdecimal():
        after = int(value)
    elif word == "once" and bool(equals) == bool(value):
        once, latch = not value, value
    else:
        raise _error(text, f"{option}: expected after=N, once or once=FILE")
    return Order(order.name, order.action, order.seconds, order.who, after, once, latch)


def _error(text: str, what: str) -> FailpointOrderError:
    return FailpointOrderError(f"{VARIABLE}: {text}: {what}")
