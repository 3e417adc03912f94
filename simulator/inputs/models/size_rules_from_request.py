"""Sizes and speedups of jobs relative to what each of them requested: ``p/2-2p``, ``downey:p,1``.

``p`` is the number of processors that a job requested. ``2p``, ``p/2`` and ``3p/2`` are rounded
down and at least 1. A rule without ``p`` gives the same result for every job.
"""

import re
from collections.abc import Callable

from pliant.core.values.sizes import Sizes, SizesError, parse_sizes
from pliant.core.values.speedup import Speedup, parse_speedup

#: From the number of processors that a job requested to its sizes, or to its speedup.
SizeRule = Callable[[int], Sizes]
SpeedupRule = Callable[[int], Speedup]

#: A multiple or a part of the request, such as `2p` or `p/2`, but not a letter of a word.
_SHARE = re.compile(r"(?<![a-z0-9])(\d*)p(?:/(\d+))?(?![a-z0-9])")
#: A request with which every valid rule can be read.
_SOME_REQUEST = 1 << 10


def _put_in(text: str, requested: int) -> str:
    """Return the text with `p`, `2p`, `p/2` and so on replaced by numbers."""

    def number(match: re.Match[str]) -> str:
        times, parts = int(match[1] or 1), int(match[2] or 1)
        if not parts:
            raise SizesError(f"{text!r}: a job cannot be parted by 0")
        return str(max(1, times * requested // parts))

    return _SHARE.sub(number, text)


def parse_size_rule(text: str) -> SizeRule:
    """Read a text for the sizes of a job in which ``p`` is the size that it requested.

    For example, ``p/2-2p:pow2`` means the powers of two from half to twice the request.

    Raises:
        SizesError: the text is not valid; the message says how to write it.
    """
    relative = _SHARE.search(text) is not None
    try:
        parse_sizes(_put_in(text, _SOME_REQUEST))
    except SizesError as error:
        if relative or "p" in text:
            raise SizesError(f"{text!r}: write one like p/2-2p, 1-p, p-4p:pow2 ({error})") from None
        raise
    found: dict[int, Sizes] = {}

    def sizes_of(requested: int) -> Sizes:
        key = requested if relative else 0
        if key not in found:
            found[key] = parse_sizes(_put_in(text, requested))
        return found[key]

    return sizes_of


def parse_speedup_rule(text: str) -> SpeedupRule:
    """Read a speedup model, such as ``downey:p,1``; ``p`` is the requested size of the job.

    Raises:
        SpeedupError: the text is not valid; the message says how to write it.
    """
    relative = _SHARE.search(text) is not None
    parse_speedup(_put_in(text, _SOME_REQUEST))
    found: dict[int, Speedup] = {}

    def speedup_of(requested: int) -> Speedup:
        key = requested if relative else 0
        if key not in found:
            found[key] = parse_speedup(_put_in(text, requested))
        return found[key]

    return speedup_of
