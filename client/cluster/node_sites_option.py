"""The sites of the nodes of a cluster on this machine, for example ``delft:2,leiden:1``.

A site is a group of nodes at one place, of which strategies for several clusters know.
"""

from __future__ import annotations

import re

from pliant.client.client_errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def parse_sites(text: str) -> list[tuple[str, int]]:
    """Return the sites of ``NAME:NODES,...`` with the number of nodes of each.

    Raises:
        UsageError: the text has another form, or names a site twice.
    """
    sites = []
    for part in text.split(","):
        name, _, nodes = part.strip().partition(":")
        if not (_NAME.fullmatch(name) and nodes.isascii() and nodes.isdigit() and int(nodes)):
            raise UsageError(
                f"--sites {text}: expected NAME:NODES,..., such as delft:2,leiden:1, not {part!r}"
            )
        sites.append((name, int(nodes)))
    names = [name for name, _ in sites]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UsageError(f"--sites {text}: {twice} is named twice: give each site one entry")
    return sites


def site_of_each_node(text: str) -> list[str]:
    """Return the site of each node, in the order of the nodes."""
    return [name for name, number in parse_sites(text) for _ in range(number)] if text else []
