"""Lists of node names with ranges, such as ``n[01-16],gpu[1,3-5]``."""

import re
from itertools import product

#: How a list is written, for messages.
FORM = "write names separated by commas, with ranges in brackets, as in n[01-16],gpu[1,3-5]"
#: The most names that one list may stand for.
MAX_NAMES = 65_536

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
#: The items of a list: no comma outside of brackets.
_ITEM = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")


def parse_node_ranges(text: str) -> tuple[str, ...]:
    """Return the node names that a text such as ``n[08-10],m1`` stands for, each once, in order.

    Leading zeros of the first number of a range are kept: ``n[08-10]`` is n08, n09, n10.

    Raises:
        ValueError: the text has another form, or stands for too many names.
    """
    names: dict[str, None] = {}
    rest = text
    while rest:
        item = _ITEM.match(rest)
        if item is None or rest[item.end() : item.end() + 1] not in ("", ","):
            raise ValueError(f"{text[:80]!r} is not a list of nodes; {FORM}")
        for name in _names(item[0], text):
            names[name] = None
        if len(names) > MAX_NAMES:
            raise ValueError(f"{text[:80]!r} stands for more than {MAX_NAMES} nodes")
        rest = rest[item.end() + 1 :]
        if not rest and text.endswith(","):
            break
    if not names or text.endswith(","):
        raise ValueError(f"{text[:80]!r} is not a list of nodes; {FORM}")
    return tuple(names)


def _names(item: str, text: str) -> list[str]:
    """Return the names of one item, which may have several brackets."""
    parts = re.split(r"\[([^\[\]]*)\]", item)
    choices = [_numbers(part, text) if place % 2 else [part] for place, part in enumerate(parts)]
    total = 1
    for choice in choices:
        total *= len(choice)
    if total > MAX_NAMES:
        raise ValueError(f"{text[:80]!r} stands for more than {MAX_NAMES} nodes")
    names = ["".join(parts) for parts in product(*choices)]
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is not the name of a node; {FORM}")
    return names


def _numbers(ranges: str, text: str) -> list[str]:
    """Return the numbers in brackets, with the leading zeros of each range."""
    numbers: list[str] = []
    for each in ranges.split(","):
        match = _RANGE.fullmatch(each.strip())
        if match is None:
            raise ValueError(f"{text[:80]!r}: {each[:40]!r} is not a number or a range; {FORM}")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise ValueError(f"{text[:80]!r}: the range {each} runs backwards; {FORM}")
        if last - first >= MAX_NAMES:
            raise ValueError(f"{text[:80]!r} stands for more than {MAX_NAMES} nodes")
        width = len(match[1])
        numbers += [f"{number:0{width}}" for number in range(first, last + 1)]
    return numbers
