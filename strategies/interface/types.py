"""The types of views and plans, and functions on processor sets, for authors of strategies.

They are defined in ``pliant.core``, which a strategy does not have to import: everything here is
exported by ``pliant.strategies``.
"""

from pliant.core.model.fair_share_factor import FairShares
from pliant.core.model.free_capacity import FreeCapacity
from pliant.core.model.nodes import JobMemory, NodeLoad, NodeReservation, ReservationState
from pliant.core.model.processor_choice import first_fit, keep_first
from pliant.core.model.usage import Usage
from pliant.core.model.views_and_plans import (
    Acceptance,
    Availability,
    Migration,
    NodeView,
    Offer,
    OpenRequest,
    Outcome,
    Plan,
    PromisedJob,
    Rejection,
    RunningJob,
    Start,
    Suspension,
    View,
    WaitingJob,
)
from pliant.core.model.wait_reasons import Reason, WaitCode, WaitReason
from pliant.core.values.fair_share_settings import Shares
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.node_needs import NodeNeeds
from pliant.core.values.processors import NONE as NO_PROCESSORS
from pliant.core.values.processors import ProcessorMap, block, count, indices, lowest
from pliant.core.values.processors import of as from_indices
from pliant.core.values.profit_contract import Contract
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.core.values.speedup import Speedup, parse_speedup

__all__ = [
    "NO_PROCESSORS",
    "Acceptance",
    "Availability",
    "Contract",
    "FairShares",
    "FreeCapacity",
    "JobId",
    "JobMemory",
    "Migration",
    "NodeLoad",
    "NodeName",
    "NodeNeeds",
    "NodeReservation",
    "NodeView",
    "Offer",
    "OpenRequest",
    "Outcome",
    "Plan",
    "ProcessorMap",
    "PromisedJob",
    "Reason",
    "Rejection",
    "ReservationState",
    "RunningJob",
    "Shares",
    "Sizes",
    "Speedup",
    "Start",
    "Suspension",
    "Usage",
    "View",
    "WaitCode",
    "WaitReason",
    "WaitingJob",
    "block",
    "count",
    "first_fit",
    "from_indices",
    "indices",
    "keep_first",
    "lowest",
    "parse_sizes",
    "parse_speedup",
]
