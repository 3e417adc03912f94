"""Names of nodes on command lines, which may be lists with ranges: ``n[01-16],m3``."""

from __future__ import annotations

from collections.abc import Sequence

from pliant.client.client_errors import UsageError


def node_names(texts: Sequence[str]) -> list[str]:
    """Return the names that all texts stand for, each once.

    Raises:
        UsageError: a text is not a list of nodes.
    """
    names: dict[str, None] = {}
    for text in texts:
        if "[" not in text and "," not in text:
            names[text] = None  # the usual case imports nothing
            continue
        from pliant.core.values.node_ranges import parse_node_ranges

        try:
            names |= dict.fromkeys(parse_node_ranges(text))
        except ValueError as error:
            raise UsageError(str(error)) from None
    return list(names)
