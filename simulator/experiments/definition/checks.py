"""Checks of data from YAML. Each error contains the key with the invalid value, and so its line."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pliant.core.support.yaml_duplicate_keys import find_duplicate_key
from pliant.simulator.experiments.definition.definitions import ExperimentError, Tolerance, Tree

#: The keys and indices that lead to a value.
Place = tuple[str | int | float, ...]

_KINDS: Mapping[type, str] = {
    str: "text",
    int: "a whole number",
    dict: "a mapping",
    list: "a list",
    bool: "true or false",
    object: "a value",
}


class InvalidError(Exception):
    """A value of a definition is invalid."""

    def __init__(self, place: Place, reason: str) -> None:
        super().__init__(reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{position_text(self.place) or 'the file'}: {self.reason}"


def position_text(place: Place) -> str:
    """Return the position of a value as text, such as ``rows[0].run.jobs``."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f"{'.' if text else ''}{step}"
    return text


def read_yaml(path: Path) -> tuple[Any, Any]:
    """Read a YAML file.

    Returns:
        The data, and the root node, which knows the lines.

    Raises:
        ExperimentError: the file cannot be read or is not valid YAML. The message says where.
    """
    import yaml

    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        root = loader.get_single_node()
        if fault := find_duplicate_key(root):
            raise ExperimentError(f"{path}: {fault}")
        return (loader.construct_document(root) if root else None), root
    except OSError as error:
        raise ExperimentError(f"{path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path}: not YAML: {' '.join(str(error).split())}") from None


def line_of(root: Any, place: Place) -> int:
    """Return the line, from 1, of a value in a document, or of its nearest existing parent."""
    node, line = root, 1
    for step in place:
        value = getattr(node, "value", None)
        if not isinstance(value, list):
            break
        if isinstance(step, int) and not (value and isinstance(value[0], tuple)):
            if step >= len(value):
                break
            node = value[step]
            line = node.start_mark.line + 1
            continue
        found = next(
            (pair for pair in value if isinstance(pair, tuple) and pair[0].value == str(step)), None
        )
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def mapping(place: Place, tree: object, known: Mapping[str, type]) -> Tree:
    """Check that a value is a mapping with known keys and values of the right types; return it.

    Args:
        place: the position of the value in the definition, for errors.
        tree: the value to check.
        known: the type of the value of each key that is allowed.

    Raises:
        InvalidError: a key is not known, or a value has another type.
    """
    for key, value in free_mapping(place, tree).items():
        if key not in known:
            raise InvalidError((*place, key), f"not known here; known are: {', '.join(known)}")
        kind = known[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
            raise InvalidError((*place, key), f"expected {_KINDS[kind]}, not {value!r}")
    return free_mapping(place, tree)


def free_mapping(place: Place, tree: object) -> Tree:
    """Check that a value is a mapping, in which any keys are allowed, and return the mapping.

    None is returned as an empty mapping.
    """
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise InvalidError(place, f"expected a mapping, not {tree!r}")
    return tree


def required(place: Place, tree: Tree, keys: Iterable[str]) -> None:
    """Check that a mapping has non-empty values for the given keys.

    Raises:
        InvalidError: the value of a key is missing or empty.
    """
    for key in keys:
        if tree.get(key) in (None, "", [], {}):
            raise InvalidError((*place, key), "is missing; this key is required")


def check_one_of(place: Place, name: object, known: Iterable[object]) -> None:
    """Check that a value is one of ``known``.

    Args:
        place: the position of the value in the definition, for errors.
        name: the value.
        known: the allowed values.

    Raises:
        InvalidError: the value is not allowed; the message lists the allowed ones.
    """
    there = list(known)
    if name not in there:
        raise InvalidError(place, f"{name!r} is none of {', '.join(map(str, there))}")


def number(place: Place, value: object) -> float:
    """Check that a value is a number, and return it."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidError(place, f"expected a number, not {value!r}")
    return float(value)


def tolerance(place: Place, value: object) -> Tolerance:
    """Read a tolerance such as 0.015 or ``3 %``."""
    text = str(value).strip()
    try:
        amount = float(text.removesuffix("%"))
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise InvalidError(place, f"expected like 0.015 or 3 %, not {value!r}")
    return Tolerance(amount / 100, True) if text.endswith("%") else Tolerance(amount)
