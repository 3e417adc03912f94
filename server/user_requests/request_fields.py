"""The types of requests and answers on the users' socket, and functions to read request fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pliant.core.values.ids import NodeName
from pliant.server.support.user_request_error import UserRequestError

Answer = dict[str, Any]
Request = Mapping[str, Any]

#: Jobs that one request may name.
MAX_IDS = 10_000


def not_found(job: int) -> UserRequestError:
    """Return the error for a job number that does not exist."""
    return UserRequestError(f"there is no job {job}", kind="not_found", field="id")


def read_number(request: Request, field: str, default: int | None = None) -> int:
    """Return a whole number, 0 or more, from a field of a request.

    Args:
        request: the request as the client sent it.
        field: the key of the field.
        default: the number if the request has no such key; None if the field is required.

    Raises:
        UserRequestError: if the field is missing or not such a number.
    """
    value = request.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise UserRequestError(f"{field}: expected a number, got {value!r:.40}", field=field)
    return value


def read_numbers(request: Request, field: str) -> list[int]:
    """Return the list of at most `MAX_IDS` numbers in a field of a request.

    Raises:
        UserRequestError: if the field is not such a list.
    """
    values = request.get(field)
    if not isinstance(values, list) or len(values) > MAX_IDS:
        raise UserRequestError(f"{field}: expected at most {MAX_IDS} numbers", field=field)
    return [read_number({field: value}, field) for value in values]


def read_names(request: Request, field: str) -> list[int | str]:
    """Return the list of at most `MAX_IDS` jobs in a field: numbers, or texts such as ``17_3``.

    Raises:
        UserRequestError: if the field is not such a list.
    """
    values = request.get(field)
    if not isinstance(values, list) or len(values) > MAX_IDS:
        raise UserRequestError(f"{field}: expected at most {MAX_IDS} numbers", field=field)
    return [
        value if isinstance(value, str) else read_number({field: value}, field) for value in values
    ]


def read_node(request: Request) -> NodeName:
    """Return the name of a node from the field ``node``.

    Raises:
        UserRequestError: if it is missing or not a text.
    """
    name = request.get("node")
    if not isinstance(name, str) or not name:
        raise UserRequestError("node: expected the name of a node", field="node")
    return NodeName(name)


def error_of_msgspec(text: str) -> UserRequestError:
    """Return the error for a user from an error text of msgspec; it names the wrong field.

    Such a text is "Expected `int`, got `str` - at `$.umask`".
    """
    message, _, place = text.partition(" - at `$")
    field = place.strip("`.").partition("[")[0]
    if not field and (match := re.search(r"field `(\w+)`", message)):
        field = match[1]
    message = message.replace("`", "")
    return UserRequestError(f"{field}: {message}" if field else message, field=field)


def field_with_lone_surrogate(raw: object) -> str:
    """Return the name of the first field that contains a lone surrogate; "job" if none does.

    Characters of the name that are not ASCII are escaped.
    """
    fields = raw.items() if isinstance(raw, dict) else ()
    for name, value in fields:
        if any("\ud800" <= char <= "\udfff" for char in f"{name}{value}"):
            return ascii(name)[1:-1]
    return "job"
