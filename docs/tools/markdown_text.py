"""Text of the program as Markdown."""

from __future__ import annotations

import re

_CODE = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~^$])")


def escape(text: str) -> str:
    """Escape a text for Markdown; parts in backticks stay code."""
    parts = _CODE.split(text.replace("``", "`"))
    return "".join(part if n % 2 else _SPECIAL.sub(r"\\\1", part) for n, part in enumerate(parts))
