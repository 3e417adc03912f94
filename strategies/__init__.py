"""Scheduling strategies: an immutable view in, a plan out.

The package exports everything that the author of a strategy needs, so that a strategy does not
import from ``pliant.core``; ``docs/writing-a-strategy.md`` lists the names by purpose. Each of
Pliant's own strategies is a module here. It is a pure function of its view, without clock and
random numbers, and its docstring names the paper and the section that it implements.

May import: the standard library and ``pliant.core``.
"""

from typing import TYPE_CHECKING

from pliant.core.support.lazy_imports import lazy_names

if TYPE_CHECKING:
    from pliant.strategies.composed import (
        Composed,
        Resizing,
    )
    from pliant.strategies.interface.base import (
        Strategy,
    )
    from pliant.strategies.interface.options import (
        OptionError,
        StrategyOption,
        UnknownOptionError,
    )
    from pliant.strategies.interface.plan_check import (
        find_fault,
    )
    from pliant.strategies.interface.types import (
        NO_PROCESSORS,
        Acceptance,
        Availability,
        Contract,
        JobId,
        NodeName,
        NodeView,
        Offer,
        OpenRequest,
        Outcome,
        Plan,
        ProcessorMap,
        PromisedJob,
        Reason,
        Rejection,
        RunningJob,
        Sizes,
        Speedup,
        Start,
        Suspension,
        View,
        WaitCode,
        WaitingJob,
        WaitReason,
        block,
        count,
        first_fit,
        from_indices,
        indices,
        keep_first,
        lowest,
        parse_sizes,
        parse_speedup,
    )
    from pliant.strategies.policies.fair_share import (
        Member,
        share,
    )
    from pliant.strategies.policies.free_processors_profile import (
        Profile,
        releases,
    )
    from pliant.strategies.policies.placement import (
        Placer,
        cluster_of,
        place,
        processors_by_cluster,
        usable_processors,
    )
    from pliant.strategies.policies.preemption import (
        Preemption,
    )
    from pliant.strategies.policies.queue_order import (
        in_order,
    )
    from pliant.strategies.policies.size_requests import (
        served,
        with_size_requests,
    )
    from pliant.strategies.policies.start_estimate import (
        beyond_minima,
        now_or_later,
        too_few,
        too_wide,
    )
    from pliant.strategies.registry import (
        UnknownStrategyError,
        is_own,
        known_strategies,
        load_strategy,
        strategy_options,
    )

__all__ = [
    "NO_PROCESSORS",
    "Acceptance",
    "Availability",
    "Composed",
    "Contract",
    "JobId",
    "Member",
    "NodeName",
    "NodeView",
    "Offer",
    "OpenRequest",
    "OptionError",
    "Outcome",
    "Placer",
    "Plan",
    "Preemption",
    "ProcessorMap",
    "Profile",
    "PromisedJob",
    "Reason",
    "Rejection",
    "Resizing",
    "RunningJob",
    "Sizes",
    "Speedup",
    "Start",
    "Strategy",
    "StrategyOption",
    "Suspension",
    "UnknownOptionError",
    "UnknownStrategyError",
    "View",
    "WaitCode",
    "WaitReason",
    "WaitingJob",
    "beyond_minima",
    "block",
    "cluster_of",
    "count",
    "find_fault",
    "first_fit",
    "from_indices",
    "in_order",
    "indices",
    "is_own",
    "keep_first",
    "known_strategies",
    "load_strategy",
    "lowest",
    "now_or_later",
    "parse_sizes",
    "parse_speedup",
    "place",
    "processors_by_cluster",
    "releases",
    "served",
    "share",
    "strategy_options",
    "too_few",
    "too_wide",
    "usable_processors",
    "with_size_requests",
]

__getattr__ = lazy_names(
    __name__,
    {
        "NO_PROCESSORS": "interface.types",
        "Acceptance": "interface.types",
        "Availability": "interface.types",
        "Composed": "composed",
        "Contract": "interface.types",
        "JobId": "interface.types",
        "Member": "policies.fair_share",
        "NodeName": "interface.types",
        "NodeView": "interface.types",
        "Offer": "interface.types",
        "OpenRequest": "interface.types",
        "OptionError": "interface.options",
        "Outcome": "interface.types",
        "Placer": "policies.placement",
        "Plan": "interface.types",
        "Preemption": "policies.preemption",
        "ProcessorMap": "interface.types",
        "Profile": "policies.free_processors_profile",
        "PromisedJob": "interface.types",
        "Reason": "interface.types",
        "Rejection": "interface.types",
        "Resizing": "composed",
        "RunningJob": "interface.types",
        "Sizes": "interface.types",
        "Speedup": "interface.types",
        "Start": "interface.types",
        "Strategy": "interface.base",
        "StrategyOption": "interface.options",
        "Suspension": "interface.types",
        "UnknownOptionError": "interface.options",
        "UnknownStrategyError": "registry",
        "View": "interface.types",
        "WaitCode": "interface.types",
        "WaitReason": "interface.types",
        "WaitingJob": "interface.types",
        "beyond_minima": "policies.start_estimate",
        "block": "interface.types",
        "cluster_of": "policies.placement",
        "count": "interface.types",
        "find_fault": "interface.plan_check",
        "first_fit": "interface.types",
        "from_indices": "interface.types",
        "in_order": "policies.queue_order",
        "indices": "interface.types",
        "is_own": "registry",
        "keep_first": "interface.types",
        "known_strategies": "registry",
        "load_strategy": "registry",
        "lowest": "interface.types",
        "now_or_later": "policies.start_estimate",
        "parse_sizes": "interface.types",
        "parse_speedup": "interface.types",
        "place": "policies.placement",
        "processors_by_cluster": "policies.placement",
        "releases": "policies.free_processors_profile",
        "served": "policies.size_requests",
        "share": "policies.fair_share",
        "strategy_options": "registry",
        "too_few": "policies.start_estimate",
        "too_wide": "policies.start_estimate",
        "usable_processors": "policies.placement",
        "with_size_requests": "policies.size_requests",
    },
)
