"""Constraints on the properties of nodes, such as ``fast&(a100|h100)``."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

#: How a constraint is written, for messages.
FORM = "write properties joined by & (and) and | (or), as in fast&(a100|h100)"
#: The longest constraint, in characters, and the most parentheses that it opens.
MAX_LENGTH, MAX_PARENTHESES = 256, 16

_PROPERTY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", re.ASCII)
_TOKEN = re.compile(rf"\s*({_PROPERTY.pattern}|[&|()])\s*", re.ASCII)

#: A property, or an operator with its operands.
_Tree = str | tuple[str, tuple["_Tree", ...]]
_Operand = Callable[[], _Tree]


def is_property(text: str) -> bool:
    """Return whether a text may be the name of a node's property."""
    return _PROPERTY.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Constraint:
    """Which properties a node must have, as in ``a&(b|!c)``. ``&`` binds more tightly than ``|``.

    Raises:
        ValueError: the text is not of this form.
    """

    text: str
    _tree: _Tree = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_tree", _Parser(self.text).parse())

    def fits(self, properties: frozenset[str]) -> bool:
        """Return whether a node with these properties fulfils the constraint."""
        return _fits(self._tree, properties)

    def __str__(self) -> str:
        return self.text


def _fits(tree: _Tree, properties: frozenset[str]) -> bool:
    if isinstance(tree, str):
        return tree in properties
    operator, operands = tree
    every = all if operator == "&" else any
    return every(_fits(operand, properties) for operand in operands)


class _Parser:
    """A recursive-descent parser for one constraint, such as ``a&(b|!c)``."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._place = 0

    def parse(self) -> _Tree:
        """Return the tree of the whole text."""
        tree = self._alternatives()
        if self._place < len(self._tokens):
            raise self._error()
        return tree

    def _split(self) -> list[str]:
        if len(self._text) > MAX_LENGTH or self._text.count("(") > MAX_PARENTHESES:
            raise ValueError(
                f"the constraint is longer than {MAX_LENGTH} characters, or has more than "
                f"{MAX_PARENTHESES} parentheses"
            )
        tokens: list[str] = []
        place = 0
        while place < len(self._text):
            match = _TOKEN.match(self._text, place)
            if match is None:
                raise self._error()
            tokens.append(match[1])
            place = match.end()
        return tokens

    def _alternatives(self) -> _Tree:
        return self._chain("|", lambda: self._chain("&", self._operand))

    def _chain(self, operator: str, operand: _Operand) -> _Tree:
        operands = [operand()]
        while self._next() == operator:
            self._place += 1
            operands.append(operand())
        return operands[0] if len(operands) == 1 else (operator, tuple(operands))

    def _operand(self) -> _Tree:
        token = self._next()
        self._place += 1
        if token == "(":
            tree = self._alternatives()
            if self._next() != ")":
                raise self._error()
            self._place += 1
            return tree
        if not is_property(token):
            raise self._error()
        return token

    def _next(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _error(self) -> ValueError:
        return ValueError(f"{self._text[:80]!r} is not a constraint; {FORM}")
