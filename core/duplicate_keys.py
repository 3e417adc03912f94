"""Find keys that stand twice in a YAML document, of which YAML's reader keeps only the last."""

from __future__ import annotations

from typing import Any


def find_duplicate_key(node: Any) -> str:
    """Return the first key that stands twice in one mapping, with its lines; empty if none does.

    Args:
        node: the root that ``yaml.compose`` returns, without aliases; None for an empty document.
    """
    if not isinstance(getattr(node, "value", None), list):
        return ""  # nothing, or a scalar
    lines: dict[tuple[str, str], int] = {}
    for item in node.value:
        if not isinstance(item, tuple):  # of a sequence
            if text := find_duplicate_key(item):
                return text
            continue
        key, value = item
        if isinstance(key.value, str):
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                return f"line {line}: the key {key.value} stands in line {lines[name]} already"
            lines[name] = line
        if text := find_duplicate_key(value):
            return text
    return ""
