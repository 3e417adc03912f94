"""Parse the JSON columns of rows, and name the row if a column is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pliant.core.model.jobs import Job
from pliant.core.model.nodes import Node, NodeState
from pliant.core.state.json_records import (
    NewerRecordError,
    job_from_record,
    node_from_record,
    node_to_record,
)
from pliant.core.support.base_error import PliantError
from pliant.core.values.ids import NodeName
from pliant.server.registry.job_program import Program, ProgramOfTask, Summary

T = TypeVar("T")

Row = Mapping[str, Any]


class UnreadableRowError(PliantError):
    """A column of a row cannot have been written by a server. The message names the row."""


def parse_job(text: str) -> Job:
    """Parse the stored record of a job."""
    return job_from_record(json.loads(text))


def parse_program(text: str) -> Program | ProgramOfTask:
    """Parse the stored program of a job, or the reference of a task to the program of its array."""
    return ProgramOfTask.from_json(text) or Program.from_json(text)


def parse_node(text: str) -> Node:
    """Parse the stored record of a node."""
    return node_from_record(json.loads(text))


def parse_processors(text: str) -> tuple[int, ...]:
    """Parse the stored processor numbers of a world (ranks started together), one for each rank."""
    return tuple(map(int, json.loads(text)))


def parse_mapping(text: str) -> dict[str, Any]:
    """Parse the stored key-value pairs of a barrier, or the stored data of an event."""
    return dict(json.loads(text))


def parse_names(text: str) -> list[str]:
    """Parse the stored node names of a phase, a time in which a job had the same processors."""
    names = json.loads(text)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(text)
    return names


#: For each table: the column that identifies a row, and the parsers of its JSON columns.
_TEXTS: Mapping[str, tuple[str, Mapping[str, Callable[[str], object]]]] = {
    "job": (
        "id",
        {"record": parse_job, "summary": Summary.from_json, "program": parse_program},
    ),
    "node": ("name", {"record": parse_node}),
    "world": ("name", {"processors": parse_processors}),
    "fence": ("world", {"pairs": parse_mapping}),
    "job_event": ("seq", {"data": parse_mapping}),
    "phase": ("seq", {"nodes": parse_names}),
}


def read_column(table: str, row: Row, column: str, how: Callable[[str], T]) -> T:
    """Parse one column of a row with ``how``; if that fails, name table, row and column.

    Args:
        table: the name of the table.
        row: a row of it.
        column: the column.
        how: reads the text of the column.

    Raises:
        UnreadableRowError: if the text is damaged.
        NewerRecordError: if a later version of Pliant wrote it.
    """
    try:
        return how(row[column])
    except NewerRecordError as error:
        raise NewerRecordError(f"{column} of {table} {row[_TEXTS[table][0]]} {error}") from None
    except Exception:  # a damaged text can cause any exception
        raise unreadable_row(table, row, column) from None


def unreadable_row(table: str, row: Row, column: str) -> UnreadableRowError:
    """Return the error that names a row with a damaged column."""
    key = row[_TEXTS[table][0]]
    return UnreadableRowError(f"{column} of {table} {key} in table {table} is {row[column]!r:.60}")


def check_row(table: str, row: Row) -> None:
    """Parse all JSON columns of a row to find damage.

    Raises:
        UnreadableRowError: a column is damaged.
        NewerRecordError: a later version of Pliant wrote a column.
    """
    for column, how in _TEXTS.get(table, ("", {}))[1].items():
        read_column(table, row, column, how)


def rebuild(table: str, row: Row) -> Row | None:
    """Return a row whose damaged record is rebuilt from its other columns; None if impossible.

    Only the row of a node can be rebuilt. Its other columns and the next registration of the node
    supply all values, except the reason for which an operator has drained the node.
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
