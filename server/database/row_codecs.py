"""The texts of rows that are read again: JSON that a server has stored, or the row is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pliant.core.model.jobs import Job
from pliant.core.model.nodes import Node, NodeState
from pliant.core.state.records import (
    NewerRecordError,
    job_from_record,
    node_from_record,
    node_to_record,
)
from pliant.core.support.errors import PliantError
from pliant.core.values.ids import NodeName
from pliant.server.registry.program import Program, Summary

T = TypeVar("T")

Row = Mapping[str, Any]


class UnreadableRowError(PliantError):
    """A row holds what no server has stored; the message says which, and what is there."""


def job(text: str) -> Job:
    """A job as the core has it."""
    return job_from_record(json.loads(text))


def node(text: str) -> Node:
    """A node as the core has it."""
    return node_from_record(json.loads(text))


def numbers(text: str) -> tuple[int, ...]:
    """The processors of a world."""
    return tuple(map(int, json.loads(text)))


def mapping(text: str) -> dict[str, Any]:
    """The pairs of a barrier, the data of a line of history."""
    return dict(json.loads(text))


#: What identifies a row of a table, and what reads its texts.
_TEXTS: Mapping[str, tuple[str, Mapping[str, Callable[[str], object]]]] = {
    "job": ("id", {"record": job, "summary": Summary.from_json, "program": Program.from_json}),
    "node": ("name", {"record": node}),
    "world": ("name", {"processors": numbers}),
    "fence": ("world", {"pairs": mapping}),
    "job_event": ("seq", {"data": mapping}),
}


def read(table: str, row: Row, column: str, how: Callable[[str], T]) -> T:
    """Read a text of a row.

    Raises:
        UnreadableRowError: it is damaged.
        NewerRecordError: a later version has written it.
    """
    try:
        return how(row[column])
    except NewerRecordError as error:
        raise NewerRecordError(f"{column} of {table} {row[_TEXTS[table][0]]} {error}") from None
    except Exception:  # whatever it is that a damaged text can cause
        raise unreadable(table, row, column) from None


def unreadable(table: str, row: Row, column: str) -> UnreadableRowError:
    """Name a row of which a text is damaged."""
    key = row[_TEXTS[table][0]]
    return UnreadableRowError(f"{column} of {table} {key} in table {table} is {row[column]!r:.60}")


def check(table: str, row: Row) -> None:
    """Look at all texts of a row.

    Raises:
        UnreadableRowError: one is damaged.
        NewerRecordError: a later version has written one.
    """
    for column, how in _TEXTS.get(table, ("", {}))[1].items():
        read(table, row, column, how)


def mended(table: str, row: Row) -> Row | None:
    """A row with damaged texts, made anew from its other columns; None: they do not tell enough.

    All that a node does not say by itself when it registers again is in its columns, but why an
    operator keeps work off it, and whether it stands in for another.
    """
    if table != "node":
        return None
    try:
        state = NodeState(row["state"])
        drained = state in {NodeState.DRAINING, NodeState.DRAINED}
        again = Node(
            NodeName(row["name"]),
            row["first"],
            row["slots"],
            row["cluster"],
            state=state,
            drained="its record was damaged" if drained else "",
            spare=state is NodeState.SPARE,
        )
    except (TypeError, ValueError):
        return None
    return {**row, "record": json.dumps(node_to_record(again))}
