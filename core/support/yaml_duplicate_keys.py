"""Find keys that occur twice in a YAML mapping. YAML's reader silently keeps the last one."""

from __future__ import annotations

from typing import Any


def find_duplicate_key(root: Any) -> str:
    """Return the first key that occurs twice in a mapping, with its lines; empty if none does.

    Args:
        root: the result of ``yaml.compose``. None for an empty document.
    """
    return _find(root, set())


def _find(node: Any, seen: set[int]) -> str:
    if not isinstance(getattr(node, "value", None), list) or id(node) in seen:
        return ""  # nothing, a scalar, or a node that an alias names again
    seen.add(id(node))
    lines: dict[tuple[str, str], int] = {}
    for item in node.value:
        if not isinstance(item, tuple):  # an item of a sequence
            if text := _find(item, seen):
                return text
            continue
        key, value = item
        if isinstance(key.value, str):
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                return f"line {line}: the key {key.value} stands in line {lines[name]} already"
            lines[name] = line
        if text := _find(value, seen):
            return text
    return ""
