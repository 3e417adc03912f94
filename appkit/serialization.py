"""Values as bytes, with pickle only where nothing else can store them.

``job.state`` and the results of ``job.once`` are stored in checkpoints and sent to joining ranks.
Reading a pickle can run any code, so pickle is used only for a value that holds something else,
an object of the program's own class for example, and only for that value. The layout is a line of
JSON, which describes the values, followed by the contents of arrays and byte strings. No MPI.
"""

import json
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

#: Number of the layout; a reader refuses any other.
LAYOUT = 1
#: Python limits the digits of numbers in text; longer ones are written in base 16.
_MAX_BITS = 4096

_Node = Any


class _NotPlain(Exception):
    """Raised inside `_Writer` if a value contains something that only pickle can store."""


def encode(values: Sequence[Any], *, allow_pickle: bool = True) -> bytes:
    """Return values as bytes that `decode` can read.

    A container that occurs several times in the values is stored once, and `decode` returns one
    object for all its occurrences. This does not apply to containers inside a pickled value.

    Args:
        values: any Python values.
        allow_pickle: if false, a value that needs pickle is an error.

    Raises:
        TypeError: a value needs pickle, which is not allowed.
        Exception: a value that needs pickle cannot be pickled; whatever pickle raises.
    """
    writer = _Writer(allow_pickle)
    body = {"layout": LAYOUT, "values": [writer.top(value) for value in values]}
    body["lengths"] = [len(blob) for blob in writer.blobs]
    head = json.dumps(body, separators=(",", ":")).encode("ascii")
    return b"".join([head, b"\n", *writer.blobs])


def decode(data: bytes, *, allow_pickle: bool = True) -> list[Any]:
    """Return the values from which `encode` made these bytes.

    Args:
        data: bytes from a source that was verified, unless ``allow_pickle`` is false.
        allow_pickle: if false, a pickled value is an error.

    Raises:
        ValueError: the bytes are damaged, have another layout, or hold a pickle that is not
            allowed.
        Exception: whatever the code of a pickled value raises.
    """
    head, _, rest = data.partition(b"\n")
    try:
        body = json.loads(head)
        layout, nodes, lengths = body["layout"], body["values"], body["lengths"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"damaged values: {error!r}") from None
    if layout != LAYOUT:
        raise ValueError(f"the values have layout {layout!r}, this version reads layout {LAYOUT}")
    return _Reader(_split(rest, lengths), allow_pickle).all(nodes)


def dtype_to_json(dtype: np.dtype[Any]) -> Any:
    """Return a numpy type in a form that JSON can carry.

    Raises:
        ValueError: the type holds Python objects, or numpy cannot describe it as text.
    """
    told = dtype.str if dtype.names is None else dtype.descr
    if not dtype.hasobject and dtype.subdtype is None:
        with suppress(TypeError, ValueError):
            if dtype_from_json(told) == dtype and not dtype.metadata:
                return told
    raise ValueError(f"{dtype} has no description as text")


def dtype_from_json(told: Any) -> np.dtype[Any]:
    """Return the numpy type that `dtype_to_json` described."""
    return np.dtype(told if isinstance(told, str) else [_field(each) for each in told])


def _field(told: Sequence[Any]) -> tuple[Any, ...]:
    name, kind, *shape = told
    inner = kind if isinstance(kind, str) else [_field(each) for each in kind]
    named = name if isinstance(name, str) else tuple(name)  # with a title
    return (named, inner, *(tuple(each) for each in shape))


def _split(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    blobs, begin = [], 0
    for length in lengths:
        blobs.append(data[begin : begin + length])
        begin += length
    if begin != len(data):
        raise ValueError(f"damaged values: {len(data)} bytes follow, expected {begin}")
    return blobs


class _Writer:
    """Encodes each value as nested JSON values, and keeps the bytes of arrays apart, in ``blobs``.

    ``blobs`` also has byte strings and pickles. Containers are numbered in the order in which they
    occur. A container that occurs again is encoded as its number.
    """

    def __init__(self, allow_pickle: bool) -> None:
        self.blobs: list[bytes] = []
        self._allow_pickle = allow_pickle
        self._numbers: dict[int, int] = {}
        self._open: set[int] = set()

    def top(self, value: Any) -> _Node:
        """Encode one value, and return the nested JSON values that describe it.

        If a part of the value needs pickle, the whole value is pickled.
        """
        blobs, numbers = len(self.blobs), len(self._numbers)
        try:
            return self._node(value)
        except (_NotPlain, RecursionError):
            if not self._allow_pickle:
                raise TypeError(f"a {type(value).__qualname__} here is not plain data") from None
            del self.blobs[blobs:]
            while len(self._numbers) > numbers:
                self._numbers.popitem()
            self._open.clear()
            return ["pickle", self._blob(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))]

    def _blob(self, data: bytes) -> int:
        self.blobs.append(data)
        return len(self.blobs) - 1

    def _node(self, value: Any) -> _Node:
        # Exact types only: a subclass may have attributes and code of its own.
        kind = type(value)
        if value is None or kind in (bool, str, float):
            return value
        if kind is int:
            return value if value.bit_length() <= _MAX_BITS else ["int", hex(value)]
        if kind is complex:
            return ["complex", value.real, value.imag]
        if kind is bytes:
            return ["bytes", self._blob(value)]
        if isinstance(value, np.generic):
            return self._scalar(value)
        return self._container(value, kind)

    def _scalar(self, value: np.generic) -> _Node:
        array = np.asarray(value)
        again: Any = array[()]
        if not array.dtype.itemsize or type(again) is not type(value):
            raise _NotPlain
        return ["scalar", self._dtype(array.dtype), self._blob(array.tobytes())]

    def _dtype(self, dtype: np.dtype[Any]) -> Any:
        try:
            return dtype_to_json(dtype)
        except ValueError:
            raise _NotPlain from None

    def _container(self, value: Any, kind: type) -> _Node:
        number = self._numbers.get(id(value))
        if number is not None:
            if number in self._open:  # a tuple that contains itself, through a list
                raise _NotPlain
            return ["again", number]
        number = self._numbers[id(value)] = len(self._numbers)
        if kind is list:
            return ["list", [self._node(each) for each in value]]
        if kind is dict:
            return ["dict", [[self._node(key), self._node(held)] for key, held in value.items()]]
        if kind in (tuple, set, frozenset):
            self._open.add(number)
            node = [kind.__name__, [self._node(each) for each in value]]
            self._open.discard(number)
            return node
        if kind is bytearray:
            return ["bytearray", self._blob(bytes(value))]
        if kind is np.ndarray:
            fortran = value.flags.f_contiguous and not value.flags.c_contiguous
            order: Any = "F" if fortran else "C"
            dtype = self._dtype(value.dtype)
            if not value.dtype.itemsize:
                raise _NotPlain
            return ["array", dtype, list(value.shape), order, self._blob(value.tobytes(order))]
        raise _NotPlain


class _Reader:
    """Decodes the values that `_Writer` has encoded as nested JSON values and ``blobs``."""

    def __init__(self, blobs: list[bytes], allow_pickle: bool) -> None:
        self._blobs, self._allow_pickle = blobs, allow_pickle
        self._containers: list[Any] = []
        self._kinds: dict[str, Callable[..., Any]] = {
            "int": lambda text: int(text, 16),
            "complex": complex,
            "bytes": lambda place: self._blobs[place],
            "scalar": self._scalar,
            "again": lambda number: self._containers[number],
            "list": self._list,
            "dict": self._dict,
            "tuple": lambda nodes: self._frozen(tuple, nodes),
            "set": lambda nodes: self._frozen(set, nodes),
            "frozenset": lambda nodes: self._frozen(frozenset, nodes),
            "bytearray": lambda place: self._keep(bytearray(self._blobs[place])),
            "array": self._array,
            "pickle": self._pickle,
        }

    def all(self, nodes: Sequence[_Node]) -> list[Any]:
        """Return the values from ``nodes``, the results of `_Writer.top`.

        Raises:
            ValueError: the nodes are damaged.
        """
        try:
            return [self._value(node) for node in nodes]
        except (LookupError, TypeError) as error:
            raise ValueError(f"damaged values: {error!r}") from error

    def _value(self, node: _Node) -> Any:
        if not isinstance(node, list):
            return node
        kind, *rest = node
        return self._kinds[kind](*rest)

    def _keep(self, value: Any) -> Any:
        self._containers.append(value)
        return value

    def _list(self, nodes: list[_Node]) -> Any:
        made = self._keep([])
        made.extend(self._value(node) for node in nodes)
        return made

    def _dict(self, pairs: list[list[_Node]]) -> Any:
        made = self._keep({})
        for key, held in pairs:
            name = self._value(key)
            made[name] = self._value(held)
        return made

    def _frozen(self, kind: type, nodes: list[_Node]) -> Any:
        place = len(self._containers)
        self._containers.append(None)  # numbered before its parts
        made = kind([self._value(node) for node in nodes])
        self._containers[place] = made
        return made

    def _scalar(self, told: Any, place: int) -> Any:
        return np.frombuffer(self._blobs[place], dtype_from_json(told))[0]

    def _array(self, told: Any, shape: list[int], order: Any, place: int) -> Any:
        flat = np.frombuffer(bytearray(self._blobs[place]), dtype_from_json(told))
        return self._keep(flat.reshape(shape, order=order))

    def _pickle(self, place: int) -> Any:
        if not self._allow_pickle:
            raise ValueError("a value needs pickle, which is not allowed here")
        return pickle.loads(self._blobs[place])
