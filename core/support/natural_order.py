"""The order of names in which numbers count by their values."""

import re


def natural_order(name: str) -> list[tuple[bool, int, str]]:
    """Return a sorting key that puts n2 before n10."""
    parts = re.split(r"(\d+)", name)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
