"""Lists of jobs: the conditions in a request for a list, and the form of the answer.

An answer has complete objects, or only the values that the request names: as rows or, for long
lists, as blocks of columns.

``jobstat`` shows a dozen values of each job, and most of them are equal in many jobs. As rows, a
list of 50,000 jobs has a fifth of the size of complete objects. As blocks of columns it has a
fifth of the size of rows, and is encoded and decoded in a fraction of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from pliant.core.model.lifecycle import JobState
from pliant.server.registry.array_tasks import lines_of_table
from pliant.server.registry.job_selection import JobSelection
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests.answer_encoding import Objects

#: Maximum number of values that a request may name.
MAX_FIELDS = 64
#: Maximum number of users, states or names that a request may list, and characters of each.
MAX_LISTED, MAX_LISTED_LENGTH = 100, 256
#: Maximum number of jobs in a block. Making and encoding one takes 1 to 2 ms.
BLOCK_JOBS = 500
_STATES = frozenset(state.value for state in JobState)


def shown_fields(request: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names in the request's ``fields``; None if complete jobs are requested.

    Raises:
        UserRequestError: if ``fields`` is not a list of names.
    """
    fields = request.get("fields")
    if fields is None:
        return None
    if (
        not isinstance(fields, list)
        or not 2 <= len(fields) <= MAX_FIELDS
        or not all(isinstance(name, str) for name in fields)
    ):
        raise UserRequestError(
            f"fields: expected 2 to {MAX_FIELDS} names of values, got {fields!r:.40}",
            field="fields",
        )
    return tuple(fields)


def read_selection(request: Mapping[str, Any], ended_since: float | None = None) -> JobSelection:
    """Return the conditions on jobs in ``users``, ``states``, ``names`` and ``since`` of a request.

    Args:
        request: the request as the client sent it.
        ended_since: the value of ``since`` if the request has none.

    Raises:
        UserRequestError: if a field has the wrong type, or a state is unknown.
    """
    states = read_texts(request, "states")
    for state in states - _STATES:
        raise UserRequestError(
            f"states: {state!r:.40} is no state; the states are {', '.join(sorted(_STATES))}",
            field="states",
        )
    if request.get("since") is not None:
        ended_since = read_time(request, "since")
    return JobSelection(
        read_texts(request, "users"), states, read_texts(request, "names"), ended_since
    )


def read_time(request: Mapping[str, Any], field: str) -> float | None:
    """Return the time in a field of a request, in seconds since the epoch; None without the field.

    Raises:
        UserRequestError: if the field is not a time.
    """
    value = request.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserRequestError(
            f"{field}: expected seconds since the epoch, got {value!r:.40}", field=field
        )
    return float(value)


def read_texts(request: Mapping[str, Any], field: str) -> frozenset[str]:
    """Return the list of texts in a field of a request; empty without the field.

    Raises:
        UserRequestError: if the field is not a list of texts, or has too many or too long texts.
    """
    values = request.get(field)
    if values is None:
        return frozenset()
    if (
        not isinstance(values, list)
        or len(values) > MAX_LISTED
        or not all(isinstance(value, str) and len(value) <= MAX_LISTED_LENGTH for value in values)
    ):
        raise UserRequestError(
            f"{field}: expected at most {MAX_LISTED} texts of at most {MAX_LISTED_LENGTH} "
            f"characters, got {values!r:.40}",
            field=field,
        )
    return frozenset(values)


def table_lines(
    jobs: Iterable[Mapping[str, Any]], *, with_ended: bool
) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of a table of jobs: one for each job, up to two for an array.

    An array has a line for its tasks that have not become jobs yet. With ``with_ended``, it has
    another one for tasks that were cancelled before they became jobs.
    """
    for job in jobs:
        if "array" in job:
            yield from lines_of_table(job, with_ended=with_ended)
        else:
            yield job


def job_list(
    jobs: Iterable[Mapping[str, Any]], fields: tuple[str, ...] | None, *, by_column: bool = False
) -> dict[str, Any]:
    """Return the part of an answer that lists jobs. Each job is encoded only when it is sent.

    Args:
        jobs: the jobs, as users may see them.
        fields: the values to send of each job; None for complete objects. A name that this server
            does not know gets the value None.
        by_column: whether to send these values as blocks of columns and not as rows.
    """
    if fields is None:
        return {"jobs": Objects(jobs)}
    if by_column:
        return {"fields": list(fields), "blocks": Objects(_blocks(jobs, fields), at_once=1)}
    return {"fields": list(fields), "rows": Objects(_rows(jobs, fields))}


def _rows(jobs: Iterable[Mapping[str, Any]], fields: tuple[str, ...]) -> Iterable[tuple[Any, ...]]:
    # Missing values are normal: jobs without a contract have none of its values.
    return (tuple(map(job.get, fields)) for job in jobs)


def _blocks(
    jobs: Iterable[Mapping[str, Any]], fields: tuple[str, ...]
) -> Iterator[Mapping[str, Any]]:
    """Yield the values of jobs in blocks: the number of jobs in the block, and a column per field.

    A column has a value for each job of the block, or one value that all these jobs have.
    """
    rest = iter(jobs)
    while block := list(islice(rest, BLOCK_JOBS)):
        columns = ([job.get(field) for job in block] for field in fields)
        yield {"count": len(block), "columns": [_shortest(column) for column in columns]}


def _shortest(column: list[Any]) -> list[Any]:
    """Return a column, or its first value alone if all values are equal."""
    return column[:1] if column.count(column[0]) == len(column) else column
