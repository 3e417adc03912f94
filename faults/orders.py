"""What ``PLIANT_FAILPOINTS`` may say.

::

    orders = order [";" order]...
    order  = NAME ["@" KEY "=" VALUE]... "=" ACTION [":" SECONDS] ["," option]...
             (SECONDS after delay and full-disk)
    option = "after=N"     the first N times nothing happens
           | "once"        once in a process
           | "once=FILE"   once in all processes together, also those that are started later: who
                           makes the file is the one
"""

import difflib
import re
from dataclasses import dataclass

from pliant.faults.registry import POINTS

VARIABLE = "PLIANT_FAILPOINTS"

#: What orders can ask of a process.
KEYS = ("rank", "role", "node", "processor", "job")

#: ``kill``: SIGKILL; ``freeze``: SIGSTOP; ``exit``: at once, code 70; ``raise``: an exception;
#: ``delay``: some seconds; ``hang``: this thread, for ever. Where a message is handled or sent:
#: ``drop``: it is lost; ``double``: it comes twice. Where something is about to be written:
#: ``full-disk``: for some seconds there is no room for anything that this process writes.
ACTIONS = ("kill", "freeze", "exit", "raise", "delay", "hang", "drop", "double", "full-disk")
#: Those that not every place can do, and why not.
SPECIAL = {
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


class OrderError(ValueError):
    """An order that cannot be understood; the text says which, and what would be."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to happen at one place."""

    name: str
    action: str
    seconds: float = 0.0
    #: The process must have all of these properties.
    who: tuple[tuple[str, str], ...] = ()
    after: int = 0
    once: bool = False
    #: File that is made by the one process to which it happens; empty: to each.
    latch: str = ""


def parse_orders(text: str) -> tuple[Order, ...]:
    """The orders in a text.

    Raises:
        OrderError: names the order and what is wrong with it.
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
    if action in SPECIAL and action not in _POINTS[name].besides:
        raise _error(text, f"{name} cannot {action}: {SPECIAL[action]}")
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


def _error(text: str, what: str) -> OrderError:
    return OrderError(f"{VARIABLE}: {text}: {what}")
