"""The types of cells: those that can be moved, and what tells one from another."""

import ast
from typing import Any

import numpy as np
from numpy.typing import DTypeLike


def cell_type(what: str, dtype: DTypeLike, object_hint: str) -> np.dtype[Any]:
    """What a program gave as the type of an array's cells.

    Args:
        what: the array, for errors.
        dtype: of a cell.
        object_hint: what to use for Python objects.

    Raises:
        ValueError: it is none, or none that numpy keeps as it is and whose bytes are all there is.
    """
    try:
        cell = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        raise ValueError(
            f"{what}: dtype={dtype!r} is no type that numpy knows: write for example 'f8', 'i4' or "
            "np.float32"
        ) from None
    if cell.hasobject:
        raise ValueError(f"{what}: Python objects do not move; use {object_hint}")
    if cell.subdtype is not None:
        base, shape = cell.subdtype
        raise ValueError(
            f"{what}: dtype={dtype!r} has an array in each cell: with dtype {base} let the "
            f"shape end with {shape}"
        )
    if not cell.itemsize or _has_empty(cell):
        raise ValueError(
            f"{what}: dtype={dtype!r} has cells or fields without length, which hold nothing: say "
            "how long they are, for example 'S16' or 'U16'"
        )
    return cell


def _has_empty(cell: np.dtype[Any]) -> bool:
    """Whether there is a text or the like of no length in it; a structure may hold nothing."""
    if cell.names is not None:
        return any(_has_empty(cell[name].base) for name in cell.names)
    return not cell.itemsize


def type_terms(cell: np.dtype[Any]) -> object:
    """What must be equal where two types are to be one, in a form that JSON can carry.

    Of a structure numpy's own short text tells the size only.
    """
    if cell.subdtype is not None:
        base, shape = cell.subdtype
        return [type_terms(base), list(shape)]
    if cell.names is None or cell.fields is None:
        return cell.str
    fields = [[name, cell.fields[name][1], type_terms(cell[name])] for name in cell.names]
    return {"bytes": cell.itemsize, "fields": fields}


def read_terms(text: str) -> object:
    """The same of a type whose text is that of ``str``; another text is left as it is."""
    try:
        return type_terms(np.dtype(ast.literal_eval(text) if text[:1] in ("[", "{") else text))
    except (TypeError, ValueError, SyntaxError):
        return text
