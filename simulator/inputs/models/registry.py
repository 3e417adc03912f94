"""Models by name, with parameters in one text: ``ghafoor:jobs=1000,gap=20,malleable=30``."""

import inspect
import re
import types
from collections.abc import Callable, Mapping
from typing import Literal, get_args, get_origin, get_type_hints

from pliant.simulator.inputs.models.downey import downey, ghafoor
from pliant.simulator.inputs.models.koala import koala
from pliant.simulator.inputs.models.kumar import kumar
from pliant.simulator.inputs.models.lublin import lublin
from pliant.simulator.inputs.models.streit import streit
from pliant.simulator.inputs.workload import Workload, WorkloadError

#: Each function takes keyword parameters with defaults. Their types are ``int``, ``float``, ``str``
#: or a ``Literal`` of texts, from which the texts of users are converted.
MODELS: Mapping[str, Callable[..., Workload]] = types.MappingProxyType(
    {
        "downey": downey,
        "ghafoor": ghafoor,
        "koala": koala,
        "kumar": kumar,
        "lublin": lublin,
        "streit": streit,
    }
)

#: Commas separate the parameters, but not inside `{1,2,4}`.
_COMMA = re.compile(r",(?![^{]*\})")
_EXPECTED = {int: "a whole number", float: "a number", str: "text"}


def is_model(text: str) -> bool:
    """Return whether a text names a model rather than a file."""
    return text.partition(":")[0] in MODELS


def parameters(model: str) -> dict[str, object]:
    """Return the parameters of a model with their defaults."""
    signature = inspect.signature(_model(model))
    return {name: parameter.default for name, parameter in signature.parameters.items()}


def make_workload(text: str, **given: object) -> Workload:
    """Make the workload that a text such as ``lublin`` or ``kumar:jobs=100,gap=64.5`` describes.

    Args:
        text: the model; its parameters override ``given``.
        given: further parameters; those that the model does not have are ignored.

    Raises:
        WorkloadError: the model or a parameter is not known, or a value is invalid. The message
            lists the known names.
    """
    name, _, rest = text.partition(":")
    known = parameters(name)
    values = {key: value for key, value in given.items() if key in known}
    named: dict[str, object] = {}
    for word in filter(None, _COMMA.split(rest)):
        key, equals, value = word.partition("=")
        if not equals:
            raise WorkloadError(f"{name}: expected parameter=value, not {word!r}")
        key = key.strip().replace("-", "_")
        if key in named:
            raise WorkloadError(f"{name}: {key}: given twice")
        named[key] = value.strip()
    return make(name, {**values, **named})


def make(model: str, values: Mapping[str, object]) -> Workload:
    """Make a workload by the name of its model.

    Args:
        model: the name of the model.
        values: its parameters by name, as texts or as converted values.

    Raises:
        WorkloadError: the model or a parameter is not known, or a value is invalid. The message
            lists the known names.
    """
    function = _model(model)
    hints = get_type_hints(function)
    known = parameters(model)
    converted = {}
    for key, value in values.items():
        if key not in known:
            raise WorkloadError(
                f"{model}: there is no parameter {key!r}; there are: {', '.join(known)}"
            )
        converted[key] = _convert(f"{model}: {key}", value, hints[key])
    try:
        return function(**converted)
    except WorkloadError as error:
        raise WorkloadError(f"{model}: {error}") from None


def _model(name: str) -> Callable[..., Workload]:
    function = MODELS.get(name)
    if function is None:
        raise WorkloadError(f"there is no model {name!r}; there are: {', '.join(MODELS)}")
    return function


def _convert(what: str, value: object, kind: type) -> object:
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise WorkloadError(
                f"{what}: expected one of {', '.join(get_args(kind))}, not {value!r}"
            )
        return value
    try:
        number = kind(str(value))
    except ValueError:
        number = None
    # Infinite numbers and NaN are invalid for all parameters.
    if number is None or (kind is float and not abs(number) < float("inf")):
        raise WorkloadError(f"{what}: expected {_EXPECTED[kind]}, not {str(value)!r}")
    return number
