"""The library for malleable MPI programs: safe points, redistributed data, requests.

It connects the program to the server, lets processes join and leave, and redistributes registered
data. It runs inside other people's programs, so it never configures logging, never installs a
signal handler unasked, and imports grpc only in the coordinator, only when there is a server.

May import: the standard library, mpi4py, numpy, grpc (lazily), ``pliant.core``, ``pliant.protos``.
Never SQLAlchemy, click or rich.
"""

from pliant.appkit.mpi.import_mpi import MPI  # noqa: F401 - first, because its error says what to do without MPI

# isort: split

from pliant.appkit.appkit_errors import (
    AppkitError,
    CheckpointError,
    DistributionError,
    DuplicateName,
    JobLeave,
    LateRegistration,
    LoopError,
    NoMPILibrary,
    NotJoined,
    PendingRequests,
    RegistrationError,
    RegistrationMismatch,
    RequestError,
    StaleHandle,
    StateError,
    UnsupportedOperation,
    WorldSizeMismatch,
)
from pliant.appkit.coordinator.answer_offer import OfferTerms
from pliant.appkit.coordinator.messages import Offer, RequestState
from pliant.appkit.coordinator.program_size_requests import Request
from pliant.appkit.decorator import malleable
from pliant.appkit.job import Job
from pliant.appkit.kinds.block_array import BlockArray
from pliant.appkit.kinds.csr_matrix import CsrMatrix
from pliant.appkit.kinds.custom import Custom
from pliant.appkit.kinds.cyclic_array import CyclicArray
from pliant.appkit.kinds.items import Items
from pliant.appkit.kinds.partitioned_array import PartitionedArray
from pliant.appkit.kinds.replicated_and_root_arrays import ReplicatedArray, RootArray
from pliant.appkit.kinds.replicated_values import State
from pliant.appkit.kinds.rng import RandomStreams
from pliant.appkit.mpi.derived_communicators import DerivedComm
from pliant.appkit.resize.hooks import ResizeInfo
from pliant.core.values.sizes import SizesError

#: Deprecated names, kept for one release.
Change = ResizeInfo
Wish = OfferTerms

__all__ = [
    "AppkitError",
    "BlockArray",
    "CheckpointError",
    "CsrMatrix",
    "Custom",
    "CyclicArray",
    "DerivedComm",
    "DistributionError",
    "DuplicateName",
    "Items",
    "Job",
    "JobLeave",
    "LateRegistration",
    "LoopError",
    "NoMPILibrary",
    "NotJoined",
    "Offer",
    "OfferTerms",
    "PartitionedArray",
    "PendingRequests",
    "RandomStreams",
    "RegistrationError",
    "RegistrationMismatch",
    "ReplicatedArray",
    "Request",
    "RequestError",
    "RequestState",
    "ResizeInfo",
    "RootArray",
    "SizesError",
    "StaleHandle",
    "State",
    "StateError",
    "UnsupportedOperation",
    "WorldSizeMismatch",
    "malleable",
]
