"""Cell types: check that a type can be sent between processes, and describe it."""

import ast
from typing import Any

import numpy as np
from numpy.typing import DTypeLike


def cell_type(what: str, dtype: DTypeLike, object_hint: str) -> np.dtype[Any]:
    """Check the cell type that a program gave for an array, and return it as a numpy type.

    Args:
        what: The array, as errors name it.
        dtype: The type of a cell, as the program gave it.
        object_hint: The call to use for Python objects.

    Raises:
        ValueError: The type is invalid, contains Python objects or subarrays, or has length 0.
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
    """Return whether a cell type or one of its fields has length 0.

    False for a structure without fields.
    """
    if cell.names is not None:
        return any(_has_empty(cell[name].base) for name in cell.names)
    return not cell.itemsize


def type_terms(cell: np.dtype[Any]) -> object:
    """Return a description of a cell type as JSON values; two types have the same only if equal.

    numpy's own short text for a structure (``dtype.str``) contains only its size.
    """
    if cell.subdtype is not None:
        base, shape = cell.subdtype
        return [type_terms(base), list(shape)]
    if cell.names is None or cell.fields is None:
        return cell.str
    fields = [[name, cell.fields[name][1], type_terms(cell[name])] for name in cell.names]
    return {"bytes": cell.itemsize, "fields": fields}


def read_terms(text: str) -> object:
    """Convert the text of a numpy type to the JSON values that `type_terms` returns for it.

    Text that does not name a numpy type is returned unchanged.
    """
    try:
        return type_terms(np.dtype(ast.literal_eval(text) if text[:1] in ("[", "{") else text))
    except (TypeError, ValueError, SyntaxError):
        return text
