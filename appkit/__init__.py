"""What a malleable MPI application imports: safe points, data that follow a resize, requests.

The session with the server, the join and leave of processes and the redistribution of registered
data live here. It runs inside other people's programs: it never configures logging, never installs
a signal handler unasked and loads grpc only in the coordinator, only when there is a server.

May import: the standard library, mpi4py, numpy, grpc (lazily), ``pliant.core``, ``pliant.protos``.
Never SQLAlchemy, click or rich.
"""

from pliant.appkit.library import MPI  # noqa: F401 - first: it says what helps without one

# isort: split

from pliant.appkit.arrays import BlockArray
from pliant.appkit.csr import CsrMatrix
from pliant.appkit.custom import Custom
from pliant.appkit.decorator import malleable
from pliant.appkit.derived import DerivedComm
from pliant.appkit.errors import (
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
)
from pliant.appkit.grids import CyclicArray
from pliant.appkit.hooks import Change
from pliant.appkit.items import Items
from pliant.appkit.job import Job
from pliant.appkit.messages import Offer, RequestState
from pliant.appkit.partition import PartitionedArray
from pliant.appkit.replicated import ReplicatedArray
from pliant.appkit.requests import Request
from pliant.appkit.rootonly import RootArray
from pliant.appkit.state import State
from pliant.appkit.streams import RandomStreams
from pliant.appkit.wishes import Wish
from pliant.core.sizes import SizesError

__all__ = [
    "AppkitError",
    "BlockArray",
    "Change",
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
    "PartitionedArray",
    "PendingRequests",
    "RandomStreams",
    "RegistrationError",
    "RegistrationMismatch",
    "ReplicatedArray",
    "Request",
    "RequestError",
    "RequestState",
    "RootArray",
    "SizesError",
    "StaleHandle",
    "State",
    "StateError",
    "UnsupportedOperation",
    "Wish",
    "malleable",
]
