"""Print the reference page of `pliant.appkit`: ``python docs/tools/reference.py``.

The page is made from the docstrings. It shows what programs use: everything that ``pliant.appkit``
exports, and the members of the handles without those that only a resize calls. Signatures are those
of the source; the text of an attribute is the ``#:`` comment above it.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pliant.appkit as kit
from pliant.appkit import job
from pliant.appkit.coordinator import answer_offer
from pliant.appkit.data import handle
from pliant.appkit.data import kind_base as registry
from pliant.appkit.kinds import block, csr, custom, item_distribution, items, partition
from pliant.appkit.kinds import cyclic as grids
from pliant.appkit.mpi import derived_communicators
from pliant.appkit.redistribution import cyclic_layout, exchange, layout, splitting

#: Sections of the page: title, objects, introduction.
_SECTIONS: list[tuple[str, list[Any], str]] = [
    ("The decorator", [kit.malleable], ""),
    (
        "The job",
        [kit.Job],
        "The object that `@malleable` passes to `main`, here called `job`. Every call that "
        "registers data raises `DuplicateName` if the name is taken, `LateRegistration` inside a "
        "loop, and `ValueError` if shape, type or another argument is invalid.",
    ),
    (
        "Handles",
        [
            kit.BlockArray,
            kit.ReplicatedArray,
            kit.Items,
            kit.CsrMatrix,
            kit.CyclicArray,
            kit.PartitionedArray,
            kit.RootArray,
            kit.Custom,
            kit.RandomStreams,
            kit.State,
            kit.DerivedComm,
        ],
        "The calls above return handles. Every attribute and method raises `NotJoined` on a "
        "joining rank whose data have not arrived, `JobLeave` on a process that has left, and "
        "`StaleHandle` after the end of `main`. Arrays have `name`, `shape` (global, in cells; for "
        "items: of one item) and `dtype`. Assigning to `local` copies the values. It raises "
        "numpy's `ValueError` if they do not fit, and `DistributionError` if the array is "
        "constant.",
    ),
    (
        "Layouts",
        [layout.Layout, cyclic_layout.CyclicLayout],
        "The attributes `layout` and `layouts` return these objects.",
    ),
    ("Offers and resizes", [kit.Offer, kit.OfferTerms, kit.ResizeInfo], ""),
    ("Requests", [kit.Request, kit.RequestState], ""),
]

#: Modules whose types appear in signatures.
_TYPES = (
    block,
    items,
    csr,
    grids,
    partition,
    splitting,
    item_distribution,
    custom,
    cyclic_layout,
    derived_communicators,
    job,
    answer_offer,
    exchange,
)

#: Names for the library's own use, in addition to those that every entry has for resizes.
_OWN = {
    *("start_with", "split_description", "depends_on_size_only", "layout_for"),
    *("old_and_new_layouts", "followers"),
    *("rebuild", "free", "hear", "learn"),
}

_HEAD = """\
# pliant.appkit: every name

This page is for authors of malleable programs. It has every name of `pliant.appkit`, with its
arguments, shapes, units and errors. [Appkit](appkit.md) explains how to use them, the
[tutorial](tutorial.md) introduces them step by step, and [errors](errors.md) lists the codes of
errors. The page is generated from the docstrings by `python docs/tools/reference.py`.

Shapes are tuples of cells, times are in seconds, and sizes are numbers of processes. Ranks and
cells count from 0, and a range is `[start, stop)`. A *collective* call must be made by all
processes at the same place of the program. [Errors](#errors) and the [types](#types) in signatures
are at the end.
"""


@dataclass(frozen=True)
class _Member:
    """An attribute or a method of a class."""

    name: str
    #: None if it is an attribute.
    function: ast.FunctionDef | None
    #: The text after the name of an attribute.
    kind: str
    text: str


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for title, things, before in _SECTIONS:
        parts.append(f"## {title}\n" + (f"\n{_wrapped(before)}\n" if before else ""))
        parts += [_of_class(each) if inspect.isclass(each) else _of(each) for each in things]
    text = "\n".join([*parts, _errors()])
    return text + "\n" + _types(text)


# ---------------------------------------------------------------- functions and classes


def _of(function: Any) -> str:
    (node,) = _parsed(function).body
    assert isinstance(node, ast.FunctionDef)
    return _described("###", function.__name__, "@" + function.__name__, node)


def _described(level: str, title: str, name: str, node: ast.FunctionDef) -> str:
    text = _markdown(ast.get_docstring(node) or "")
    return f"{level} {title}\n\n```python\n{_call(name, node)}\n```\n\n{text}\n"


def _of_class(cls: type) -> str:
    is_job = cls is kit.Job
    parts = [] if is_job else [f"### {cls.__name__}\n\n{_markdown(inspect.getdoc(cls) or '')}\n"]
    owner = "job" if is_job else cls.__name__
    members = [member for member in _members(cls) if member.name not in _business(cls)]
    plain = [_bullet(member, "job." if is_job else "") for member in members if not member.function]
    if plain:
        parts.append("Attributes:\n\n" + "\n".join(plain) + "\n")
    for member in members:
        if member.function is not None:
            name = f"{owner}.{member.name}"
            parts.append(_described("###" if is_job else "####", name, name, member.function))
    return "\n".join(parts)


def _business(cls: type) -> set[str]:
    """Return names that programs do not use, or that are described for all arrays together."""
    if not issubclass(cls, registry.RegisteredData | kit.DerivedComm):
        return set()
    return _OWN | set(dir(handle.Handle)) | {"name", "shape", "dtype"}


def _bullet(member: _Member, before: str) -> str:
    text, _, errors = member.text.partition("\n\nRaises:\n")
    entries = _entries(textwrap.dedent(errors).splitlines())
    raised = [
        f"`{name}`: {what.rstrip('.')}" for name, _, what in (e.partition(": ") for e in entries)
    ]
    more = f" Raises {'; '.join(raised)}." if raised else ""
    told = _code(" ".join(text.split()) + more)
    line = f"- `{before}{member.name}`{member.kind}" + (f": {told}" if told else "")
    return textwrap.fill(line, 100, subsequent_indent="  ", break_on_hyphens=False)


def _members(cls: type) -> list[_Member]:
    """Return the members of a class and its bases, its own first."""
    found: dict[str, _Member] = {}
    for each in cls.__mro__:
        if each.__module__.startswith("pliant."):
            for member in _own_members(each):
                found.setdefault(member.name, member)
    return list(found.values())


def _own_members(cls: type) -> Iterator[_Member]:
    (tree,) = _parsed(cls).body
    assert isinstance(tree, ast.ClassDef)
    lines = inspect.getsource(cls).splitlines()
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    settable = {node.name for node in functions if "setter" in _decorators(node)}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield from _of_definition(node, settable, lines)
        else:
            yield from _of_assignment(node, lines, documented=False)


def _of_definition(
    node: ast.FunctionDef, settable: set[str], lines: list[str]
) -> Iterator[_Member]:
    decorators, text = _decorators(node), ast.get_docstring(node) or ""
    if node.name == "__init__":
        for statement in node.body:
            yield from _of_assignment(statement, lines, documented=True)
    if node.name.startswith("_") or "setter" in decorators:
        return
    if "property" in decorators:
        kind = ast.unparse(node.returns) if node.returns else ""
        assigned = ", may be assigned to" if node.name in settable else ""
        yield _Member(node.name, None, f" (`{kind}`{assigned})", text)
    else:
        yield _Member(node.name, node, "", text)


def _of_assignment(node: ast.stmt, lines: list[str], *, documented: bool) -> Iterator[_Member]:
    """Return an attribute; with ``documented`` only if there is a comment above it."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "_")
    text = _above(lines, node.lineno)
    if not name.startswith("_") and (text or not documented):
        yield _Member(name, None, _value_kind(node), text)


def _value_kind(node: ast.Assign | ast.AnnAssign) -> str:
    value = f" = {ast.unparse(node.value)}" if node.value is not None else ""
    if isinstance(node, ast.AnnAssign):
        return f" (`{ast.unparse(node.annotation)}{value}`)"
    return f" (`{value[3:]}`)" if isinstance(node.value, ast.Constant) else ""


def _above(lines: list[str], number: int) -> str:
    """Return the text after ``#:`` above line ``number``, which counts from 1."""
    first = last = number - 1
    while first and lines[first - 1].strip().startswith("#:"):
        first -= 1
    return " ".join(line.strip().removeprefix("#:").strip() for line in lines[first:last])


# ---------------------------------------------------------------- errors and types


def _errors() -> str:
    exported = (getattr(kit, name) for name in kit.__all__)
    kinds = [e for e in exported if inspect.isclass(e) and issubclass(e, BaseException)]
    rows = [
        f"| `{kind.__name__}` | {', '.join(f'`{base.__name__}`' for base in kind.__bases__)} "
        f"| {_code((inspect.getdoc(kind) or '').split(chr(10) * 2)[0]).replace(chr(10), ' ')} |"
        for kind in kinds
    ]
    return "\n".join(["## Errors\n", "| error | is a | meaning |", "|---|---|---|", *rows, ""])


def _types(text: str) -> str:
    """Return the names of the types in the signatures of a text."""
    found = [alias for module in _TYPES for alias in _aliases(module)]
    rows = [row for name, row in found if re.search(rf"[:>\[( ]`?{name}\b[^:]", text)]
    before = "Names in the signatures above; a function of the program gets and returns this."
    head = ["## Types\n", before, "", "| name | type | meaning |", "|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _aliases(module: ModuleType) -> Iterator[tuple[str, str]]:
    lines = inspect.getsource(module).splitlines()
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, text = node.targets[0].id, _above(lines, node.lineno)
            if text and name[0].isupper() and not name.isupper():
                kind = ast.unparse(node.value).replace("|", "\\|")
                yield name, f"| `{name}` | `{kind}` | {_code(text)} |"


# ---------------------------------------------------------------- text


def _parsed(thing: Any) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(thing)))


def _decorators(node: ast.FunctionDef) -> set[str]:
    return {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}


def _call(name: str, node: ast.FunctionDef) -> str:
    """Return the signature of a function, with one argument per line if it is long."""
    arguments = _arguments(node.args)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    # The type of a decorator is that of what it is given.
    returns = re.sub(r"\b(Hook|OnOffer)T\b", r"\1", returns)
    call = f"{name}({', '.join(arguments)}){returns}"
    if len(call) <= 100:
        return call
    return "\n".join([f"{name}(", *(f"    {each}," for each in arguments), f"){returns}"])


def _arguments(given: ast.arguments) -> list[str]:
    plain = given.args[given.args[:1] != [] and given.args[0].arg == "self" :]
    without: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults))
    texts = [_argument(*pair) for pair in zip(plain, [*without, *given.defaults], strict=True)]
    if given.vararg:
        texts.append("*" + _argument(given.vararg, None))
    elif given.kwonlyargs:
        texts.append("*")
    texts += [_argument(*pair) for pair in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return texts + (["**" + _argument(given.kwarg, None)] if given.kwarg else [])


def _argument(node: ast.arg, default: ast.expr | None) -> str:
    kind = re.sub(r"\b(Hook|OnOffer)T\b", r"\1", ast.unparse(node.annotation or ast.Name("Any")))
    return f"{node.arg}: {kind}" + (f" = {ast.unparse(default)}" if default is not None else "")


def _markdown(docstring: str) -> str:
    """Return a docstring with its sections as lists."""
    paragraphs = []
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        title, _, rest = paragraph.partition("\n")
        if title in ("Args:", "Raises:", "Returns:"):
            entries = _entries(textwrap.dedent(rest).splitlines())
            paragraphs.append(title + "\n\n" + "\n".join(_listed(entries, title)))
        else:
            paragraphs.append(_wrapped(_code(paragraph)))
    return "\n\n".join(paragraphs)


def _entries(lines: Iterable[str]) -> list[str]:
    """Yield lines, each joined with its continuation lines."""
    entries: list[str] = []
    for line in lines:
        if line.startswith(" ") and entries:
            entries[-1] += " " + line.strip()
        else:
            entries.append(line.strip())
    return entries


def _listed(entries: list[str], title: str) -> Iterator[str]:
    if title == "Returns:":
        entries = [" ".join(entries)]
    for entry in entries:
        names, colon, text = entry.partition(": ")
        named = ", ".join(f"`{name.strip()}`" for name in names.split(","))
        told = f"{named}: {text}" if colon and title != "Returns:" else entry
        yield textwrap.fill(f"- {_code(told)}", 100, subsequent_indent="  ", break_on_hyphens=False)


def _code(text: str) -> str:
    return text.replace("``", "`")


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 100)


if __name__ == "__main__":
    sys.stdout.write(page())
