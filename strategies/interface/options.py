"""Options of strategies: the keyword parameters of the class or function that makes a strategy.

The annotation of a parameter says which values it takes: ``int``, ``float``, ``bool``, ``str``, a
``Literal`` of texts, or one of these with ``| None`` (written ``none``). The help text of an option
is its entry under ``Args:`` in the docstring. On the command line, ``-`` stands for ``_``.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pliant.core.support.base_error import PliantError

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_EXPECTED = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
#: The title of a section of a docstring, which ends the previous section.
_SECTION = re.compile(r"\s*(Args|Attributes|Raises|Returns|Yields|Note|Example)s?:\s*")


class OptionError(PliantError, ValueError, code="strategy-option"):
    """The value of an option is invalid. The message says what is expected."""


class UnknownOptionError(OptionError):
    """A strategy has no such option. The message lists the options that it has."""


@dataclass(frozen=True, slots=True)
class StrategyOption:
    """An option of a strategy: name, expected values, default and help text."""

    #: As on the command line, with ``-``.
    name: str
    #: A description of valid values: ``a whole number``, ``one of direct, pool, steal``.
    expected: str
    default: object
    #: One sentence, or empty.
    help: str = ""


def describe(make: Callable[..., Any]) -> list[StrategyOption]:
    """Return the options of a strategy's class or function, in the order of its parameters."""
    texts = _help(make)
    return [
        StrategyOption(
            name.replace("_", "-"),
            _expected(parameter.annotation),
            None if parameter.default is parameter.empty else parameter.default,
            texts.get(name, ""),
        )
        for name, parameter in _parameters(make).items()
    ]


def convert(
    strategy: str,
    make: Callable[..., Any],
    options: Mapping[str, object],
    others: Iterable[str] = (),
) -> dict[str, object]:
    """Check a user's options for a strategy; return them as keyword arguments for ``make``.

    Args:
        strategy: the name of the strategy, for messages.
        make: the class or function that makes the strategy.
        options: values by name.
        others: names of options that other code handles, for messages.

    Raises:
        UnknownOptionError: there is no such option.
        OptionError: a value is invalid, or an option is given twice.
    """
    known = _parameters(make)
    values: dict[str, object] = {}
    for written, value in options.items():
        name = written.replace("-", "_")
        if name not in known:
            raise UnknownOptionError(
                f"strategy {strategy} has no option {written!r}; it has: "
                + (", ".join((*known, *others)).replace("_", "-") or "none")
            )
        if name in values:
            raise OptionError(f"strategy {strategy}: option {written} is given twice")
        values[name] = _value(strategy, written, known[name].annotation, str(value))
    return values


def _parameters(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        signature = inspect.signature(make, eval_str=True)
    except (ValueError, TypeError):  # Built-in types have no signature.
        return {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind in named
    }


def _value(strategy: str, option: str, kind: Any, text: str) -> object:
    kinds = _alternatives(kind)
    if NoneType in kinds and text.strip().lower() == "none":
        return None
    for each in kinds:
        try:
            return _read(each, text.strip())
        except ValueError:
            continue
    raise OptionError(f"strategy {strategy}: option {option}: {text!r} is not {_expected(kind)}")


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _read(kind: Any, text: str) -> object:
    """Convert the text of an option to the type ``kind``.

    Raises:
        ValueError: the text is not a value of this type.
    """
    if get_origin(kind) is Literal and text in get_args(kind):
        return text
    if kind is bool and text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    if kind is int and _WHOLE.fullmatch(text):
        return int(text)
    if kind is float and text.isascii() and "_" not in text and not math.isnan(float(text)):
        return float(text)
    if kind is str or kind is inspect.Parameter.empty:
        return text
    raise ValueError(text)


def _expected(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join("none" if k is NoneType else _expected(k) for k in get_args(kind))
    return _EXPECTED.get(kind, "text")


def _help(make: Callable[..., Any]) -> dict[str, str]:
    """Return the entries under ``Args:`` in the docstring of a class or of its constructor."""
    result: dict[str, str] = {}
    for document in (inspect.getdoc(make), inspect.getdoc(getattr(make, "__init__", None))):
        _, found, rest = (document or "").partition("Args:\n")
        name = ""
        for line in rest.splitlines() if found else []:
            if _SECTION.fullmatch(line):
                break
            entry = re.fullmatch(r" {4}(\w+)(?: \(.*\))?: (.*)", line)
            if entry:
                name = entry[1]
                result.setdefault(name, entry[2].strip())
            elif name and line.startswith("        "):
                result[name] += " " + line.strip()
    return result
