"""Models by name, with parameters in one word: ``ghafoor:jobs=1000,gap=20,malleable=30``."""

import inspect
import re
import types
from collections.abc import Callable, Mapping
from typing import Literal, get_args, get_origin, get_type_hints

from pliant.simulator.inputs.models.downey import downey, ghafoor
from pliant.simulator.inputs.models.kumar import kumar
from pliant.simulator.inputs.models.lublin import lublin
from pliant.simulator.inputs.workload import Workload, WorkloadError

MODELS: Mapping[str, Callable[..., Workload]] = types.MappingProxyType(
    {"downey": downey, "ghafoor": ghafoor, "kumar": kumar, "lublin": lublin}
)

#: Commas part the parameters, but not inside of `{1,2,4}`.
_COMMA = re.compile(r",(?![^{]*\})")
_EXPECTED = {int: "a whole number", float: "a number", str: "text"}


def is_model(text: str) -> bool:
    """Whether a workload is named like a model, not like a file."""
    return text.partition(":")[0] in MODELS


def parameters(model: str) -> dict[str, object]:
    """The parameters of a model with their defaults."""
    signature = inspect.signature(_model(model))
    return {name: parameter.default for name, parameter in signature.parameters.items()}


def make_workload(text: str, **given: object) -> Workload:
    """Make the workload that a text like ``lublin`` or ``kumar:jobs=100,gap=64.5`` names.

    Args:
        text: what stands in it goes before what is given.
        given: further parameters; those that the model does not have are passed over.

    Raises:
        WorkloadError: there is no such model or parameter, or a value makes no sense; the message
            lists what is known.
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
    """Make a workload by the name of its model; values may be texts.

    Raises:
        WorkloadError: there is no such model or parameter, or a value makes no sense; the message
            lists what is known.
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
            raise WorkloadError(f"{what}: expected one of {', '.join(get_args(kind))}")
        return value
    try:
        number = kind(str(value))
    except ValueError:
        number = None
    # No parameter is infinite, or not a number.
    if number is None or (kind is float and not abs(number) < float("inf")):
        raise WorkloadError(f"{what}: expected {_EXPECTED[kind]}, not {str(value)!r}")
    return number
