"""The reference of the configuration keys, made from the classes that hold the configuration."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
from collections.abc import Iterator, Mapping

import msgspec
from markdown_text import escape

from pliant.core.values.negotiation_policy import NegotiationPolicy
from pliant.nodectl.settings import ControllerSettings
from pliant.server.config import Config

_HEAD = """\
# Configuration keys

This page is for administrators who look up the type or the default of a key. It is made from the
classes of the program that read the files. [Configuration](../configuration.md) explains each key
and has examples.
"""

_SECTIONS = (
    ("The server", "Keys of the file of `pliant server --config`.", Config),
    ("Negotiation", "Keys below `negotiation` in the file of the server.", NegotiationPolicy),
    ("A node controller", "Keys of the file of `pliant nodectl --config`.", ControllerSettings),
)


def make_pages() -> Mapping[str, str]:
    """Return the text of the page with all configuration keys, by the page's path."""
    parts = [_HEAD]
    for title, before, cls in _SECTIONS:
        parts += [f"## {title}\n\n{before}\n", *_keys(cls)]
    return {"configuration-keys.md": "\n".join(parts)}


def _keys(cls: type) -> Iterator[str]:
    defaults = _defaults(cls)
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    for name, kind, text in _annotated(cls):
        cell = f"`{kind}`".replace("|", "\\|")
        yield f"| `{name}` | {cell} | {defaults[name]} | {escape(text)} |"
    yield ""


def _defaults(cls: type) -> dict[str, str]:
    if dataclasses.is_dataclass(cls):
        return {field.name: _shown(field.default) for field in dataclasses.fields(cls)}
    return {field.name: _default(field) for field in msgspec.structs.fields(cls)}


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return _shown(field.default)
    value = field.default_factory()
    # Empty lists and dicts are made for each object. Other values depend on the host.
    return "of the host" if value else _shown(value)


def _shown(value: object) -> str:
    if value == "":
        return "(empty)"
    if isinstance(value, NegotiationPolicy):
        return "`{}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _annotated(cls: type) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and comment (``#:``) of each field of a class, in the source's order."""
    lines = inspect.getsource(cls).splitlines()
    (tree,) = ast.parse("\n".join(lines)).body
    assert isinstance(tree, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ast.unparse(node.annotation), _comment(lines, node.lineno)


def _comment(lines: list[str], number: int) -> str:
    """Return the text after ``#:`` above line ``number``, which counts from 1."""
    first = last = number - 1
    while first and lines[first - 1].strip().startswith("#:"):
        first -= 1
    return " ".join(line.strip().removeprefix("#:").strip() for line in lines[first:last])
