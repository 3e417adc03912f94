"""Encode answers to users as JSON, long ones piece by piece.

One thread serves all users. Encoding a list of 50,000 jobs takes most of a second. So the list is
encoded in pieces, each within a few milliseconds, and other requests are served between two pieces.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

#: Objects that are encoded in one piece. For jobs of usual size, this takes 1 to 3 ms.
OBJECTS_AT_ONCE = 250
_encode = msgspec.json.Encoder().encode


class Objects:
    """A long array in an answer, whose objects are made one by one while the answer is sent."""

    def __init__(self, values: Iterable[object], *, at_once: int = OBJECTS_AT_ONCE) -> None:
        """Create an array.

        Args:
            values: the objects of the array.
            at_once: how many objects are encoded in one piece.
        """
        self._values, self._at_once = iter(values), at_once

    def pieces(self) -> Iterator[bytes]:
        """Yield the JSON text of the objects in pieces, without the brackets around them."""
        comma = b""
        while some := list(islice(self._values, self._at_once)):
            yield comma + encode(some)[1:-1]
            comma = b","


def encode(value: object) -> bytes:
    """Return a value as JSON."""
    try:
        return _encode(value)
    except (UnicodeEncodeError, TypeError):
        # File names that are no valid UTF-8 (lone surrogates), and numbers of more than 64 bits.
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def encode_pieces(answer: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield an answer as one line of JSON, in pieces between which other users are served.

    Arrays of `Objects` come last, wherever their key is in the answer.
    """
    plain = {key: value for key, value in answer.items() if not isinstance(value, Objects)}
    line = encode(plain)
    arrays = {key: value for key, value in answer.items() if isinstance(value, Objects)}
    if not arrays:
        yield line + b"\n"
        return
    yield line[:-1]
    comma = b"," if plain else b""
    for key, objects in arrays.items():
        yield comma + encode(key) + b":["
        yield from objects.pieces()
        yield b"]"
        comma = b","
    yield b"}\n"
