"""What can go wrong in a malleable program, as exceptions.

::

    AppkitError (Exception)
    ├── NotJoined             the communicator or the data were touched before they are there
    ├── StaleHandle           a handle was used after main() ended, a communicator after a resize
    ├── PendingRequests       a request was pending at a safe point; ends the process
    ├── LoopError             loops are nested, or a safe point stands inside a loop
    ├── RegistrationError
    │   ├── DuplicateName     two arrays of one name
    │   ├── LateRegistration  registered inside a loop
    │   └── RegistrationMismatch  a newcomer registered something else than the others
    ├── DistributionError     data cannot be distributed as the program says (a ValueError, too)
    ├── StateError            a value of job.state cannot be stored or sent (a TypeError, too)
    ├── CheckpointError       a checkpoint cannot be written, or not be gone on from
    ├── RequestError          a request asks for what cannot be (a ValueError, too)
    ├── NoMPILibrary          mpi4py finds no MPI library (an ImportError, too)
    ├── UnsupportedOperation  an MPI operation cannot work in a job that grows
    └── ResizeFailed          a resize was rolled back; internal, its text goes to the server
    JobLeave (BaseException)  this process leaves the job: unwinds main() and ends with code 0
    SizesError (ValueError)   sizes= is not in the size grammar; of pliant.core.values.sizes
"""

from pliant.core.support.errors import PliantError


class AppkitError(PliantError):
    """Base of all errors of this library."""


class NoMPILibrary(AppkitError, ImportError):
    """There is no MPI library that mpi4py could load."""


class NotJoined(AppkitError):
    """The communicator or data of the job were touched before the first safe point."""


class StaleHandle(AppkitError):
    """A handle was used after ``main`` ended, or a communicator after a resize."""


class PendingRequests(AppkitError):
    """A request on ``job.comm`` was pending at a safe point, so that a resize cannot end."""


class LoopError(AppkitError):
    """Loops are nested, a safe point stands inside a loop, or a loop cannot be resumed."""


class RegistrationError(AppkitError):
    """What is registered is not what it must be."""


class DuplicateName(RegistrationError):
    """Two registered things have one name."""


class LateRegistration(RegistrationError):
    """Something was registered inside a loop; newcomers would not have it."""


class RegistrationMismatch(RegistrationError):
    """A newcomer registered something else, or in another order, than the running processes."""


class DistributionError(AppkitError, ValueError):
    """What the program says about where its data belong makes no sense, or was asked elsewhere."""


class StateError(AppkitError, TypeError):
    """A value of ``job.state``, or a result of ``job.once``, cannot be sent or stored."""


class RequestError(AppkitError, ValueError):
    """A request for other sizes asks for what the program cannot have."""


class UnsupportedOperation(AppkitError):
    """An MPI operation was called that cannot work on the ranks of a job that grows."""


class ResizeFailed(AppkitError):
    """A resize that was rolled back.

    Attributes:
        stage: ``join``, ``check``, ``move`` or ``commit``.
        reason: text for the user.
    """

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"{stage}: {reason}")
        self.stage = stage
        self.reason = reason


class CheckpointError(AppkitError):
    """A checkpoint cannot be written, or is not one that this program can go on from."""


class JobLeave(BaseException):
    """This process leaves the job.

    Not an ``Exception``, so that ``except Exception`` lets it pass. Where it is caught all the
    same, the next touch of the job raises it again.
    """
