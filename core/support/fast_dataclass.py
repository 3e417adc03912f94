"""Frozen dataclasses that are fast to make.

A frozen dataclass stores each field through ``object.__setattr__``, which takes longer than the
rest of its construction. The core makes about a dozen of them for each job.
"""

from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

T = TypeVar("T")

#: Sets attributes of frozen instances, too.
_set: Any = object.__setattr__


def fast_init(cls: type[T]) -> type[T]:
    """Decorate a frozen dataclass with slots, so that instances are made more than twice as fast.

    During its construction, an instance has another class with the same slots that is not frozen.
    Everything else is as in ``dataclass``: parameters, defaults, ``__post_init__``, frozen
    instances.
    """
    given = [field for field in fields(cls) if field.init]  # type: ignore[arg-type]
    draft = type(cls.__name__, (), {"__slots__": [field.name for field in fields(cls)]})  # type: ignore[arg-type]
    names: dict[str, Any] = {"_set": _set, "_draft": draft, "_cls": cls, "_none": MISSING}
    parameters = [_parameter(field, names) for field in given]
    lines = [f"def __init__(self, {', '.join(parameters)}):", " _set(self, '__class__', _draft)"]
    lines += [f" self.{field.name} = {_value(field)}" for field in given]
    lines.append(" self.__class__ = _cls")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    exec("\n".join(lines), names)  # as `dataclass` itself does
    made = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    made.__annotations__ = cls.__init__.__annotations__
    cls.__init__ = made  # type: ignore[method-assign]
    return cls


def _parameter(field: Field[Any], names: dict[str, Any]) -> str:
    if field.default is not MISSING:
        names[f"_{field.name}"] = field.default
        return f"{field.name}=_{field.name}"
    if field.default_factory is not MISSING:
        names[f"_{field.name}"] = field.default_factory
        return f"{field.name}=_none"
    return field.name


def _value(field: Field[Any]) -> str:
    if field.default_factory is MISSING:
        return field.name
    return f"_{field.name}() if {field.name} is _none else {field.name}"
