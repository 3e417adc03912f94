"""Workloads made by models. All random numbers come from ``random.Random(seed)``.

`registry` finds a model by its name; `downey`, `koala`, `kumar`, `lublin` and `streit` are the
models, by their authors. `malleable` makes jobs of any workload malleable or evolving.
"""

from pliant.simulator.inputs.models.downey import downey, ghafoor
from pliant.simulator.inputs.models.kumar import kumar
from pliant.simulator.inputs.models.load_scaling import shrink
from pliant.simulator.inputs.models.lublin import lublin
from pliant.simulator.inputs.models.malleable import make_evolving, make_malleable
from pliant.simulator.inputs.models.priorities import give_priorities, parse_priorities
from pliant.simulator.inputs.models.registry import (
    MODELS,
    is_model,
    make,
    make_workload,
    parameters,
)
from pliant.simulator.inputs.models.size_rules_from_request import (
    parse_size_rule,
    parse_speedup_rule,
)
from pliant.simulator.inputs.models.users import give_users, parse_users

__all__ = [
    "MODELS",
    "downey",
    "ghafoor",
    "give_priorities",
    "give_users",
    "is_model",
    "kumar",
    "lublin",
    "make",
    "make_evolving",
    "make_malleable",
    "make_workload",
    "parameters",
    "parse_priorities",
    "parse_size_rule",
    "parse_speedup_rule",
    "parse_users",
    "shrink",
]
