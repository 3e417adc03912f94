"""Protocol numbers: which versions of Pliant understand each other's messages and spools.

A spool is the folder in which a node stores its running jobs. Each message that opens a stream of a
node and each file of a spool carries two numbers: the protocol of the version that wrote it, and
the oldest protocol whose programs can still read it. An unknown key is ignored and a missing one
has its default, so most changes need no new number. A change that an older version would
misunderstand raises `PROTOCOL`, and `OLDEST_READER` with it. Messages and files of the first
versions have no numbers and count as protocol 0.

Only the standard library is imported, because shims load this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pliant.core.support.base_error import PliantError

#: The protocol that this version writes.
PROTOCOL = 2
#: The oldest protocol whose programs can read what this version writes.
OLDEST_READER = 0
#: The oldest protocol that this version can read.
OLDEST_READABLE = 0


class ProtocolError(PliantError):
    """A message or file needs another version of Pliant; the text has both protocol numbers."""


def mismatch(what: str, protocol: int, oldest_reader: int, oldest: int | None = None) -> str:
    """Return why this version of Pliant cannot read a message or file; empty if it can.

    Args:
        what: names the message or file and its origin.
        protocol: the protocol that it is written in.
        oldest_reader: the oldest protocol whose programs can read it.
        oldest: the oldest protocol that is accepted; by default the oldest that can be read.
    """
    first = OLDEST_READABLE if oldest is None else oldest
    if oldest_reader > PROTOCOL:
        problem, remedy = "too new", "start a newer version of Pliant here"
    elif protocol < first:
        problem, remedy = "too old", "start an older version of Pliant here"
    else:
        return ""
    return (
        f"{what} has protocol {protocol}, which is {problem}: this version takes protocol "
        f"{first} to {PROTOCOL}; {remedy}, or the same version on both sides"
    )


def peer_mismatch(who: str, protocol: int, oldest_reader: int) -> str:
    """Return why this version and a peer cannot understand each other; empty if they can.

    Args:
        who: names the peer, for the text.
        protocol: the protocol number of the peer.
        oldest_reader: the lowest protocol number of a program that can read what the peer sends.
    """
    return mismatch(who, protocol, oldest_reader, max(OLDEST_READABLE, OLDEST_READER))


def numbers() -> dict[str, int]:
    """Return the protocol numbers that this version writes into its messages and files, by key.

    ``protocol`` is its own number. ``oldest_reader`` is the lowest number of a program that can
    read what it writes.
    """
    return {"protocol": PROTOCOL, "oldest_reader": OLDEST_READER}


def check_record(what: str, record: Mapping[str, Any]) -> None:
    """Check the protocol numbers of a record, before its other fields are used.

    Raises:
        ProtocolError: this version cannot read the record.
        ValueError: the numbers are damaged.
    """
    found = [record.get(name, 0) for name in ("protocol", "oldest_reader")]
    for number in found:
        if type(number) is not int or number < 0:
            raise ValueError(f"{what}: protocol: expected a number from 0, got {number!r}")
    if reason := mismatch(what, *found):
        raise ProtocolError(reason)


def known_fields(cls: type, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the items of ``record`` that are fields of the dataclass ``cls``; drop all others."""
    names = {field.name for field in fields(cls)}
    return {name: value for name, value in record.items() if name in names}
