"""The exceptions of a malleable program.

::

    AppkitError (Exception)
    ├── NotJoined             the communicator or the data were used before they are there
    ├── StaleHandle           a handle was used after main() ended, a communicator after a resize
    ├── PendingRequests       a request was pending at a safe point; ends the process
    ├── LoopError             loops are nested, or a safe point is inside a loop
    ├── RegistrationError
    │   ├── DuplicateName     two arrays of one name
    │   ├── LateRegistration  registered inside a loop
    │   └── RegistrationMismatch  a joining rank registered other data than the job
    ├── DistributionError     data cannot be distributed as requested (also a ValueError)
    ├── StateError            a value of job.state cannot be stored or sent (also a TypeError)
    ├── CheckpointError       a checkpoint cannot be written, or the job cannot continue from it
    ├── RequestError          a request for a size that the job cannot have (also a ValueError)
    ├── NoMPILibrary          mpi4py finds no MPI library (also an ImportError)
    ├── UnsupportedOperation  an MPI operation cannot work in a job that grows
    └── ResizeFailed          a resize was rolled back; internal, the server gets its text
    JobLeave (BaseException)  this process leaves the job: unwinds main() and ends with code 0
    SizesError (ValueError)   sizes= is not in the size grammar; see pliant.core.values.sizes
"""

from pliant.core.support.errors import PliantError


class AppkitError(PliantError):
    """Base of all errors of this library."""


class NoMPILibrary(AppkitError, ImportError):
    """There is no MPI library that mpi4py could load."""


class NotJoined(AppkitError):
    """The communicator or the data of the job were used before the first safe point."""


class StaleHandle(AppkitError):
    """A handle was used after ``main`` ended, or a communicator after a resize."""


class PendingRequests(AppkitError):
    """A request on ``job.comm`` was pending at a safe point, so a resize could not end."""


class LoopError(AppkitError):
    """Loops are nested, a safe point is inside a loop, or a loop cannot be resumed."""


class RegistrationError(AppkitError):
    """A registration is not valid."""


class DuplicateName(RegistrationError):
    """Two registrations have the same name."""


class LateRegistration(RegistrationError):
    """Something was registered inside a loop, so joining ranks would not have it."""


class RegistrationMismatch(RegistrationError):
    """A joining rank registered other things, or in another order, than the job."""


class DistributionError(AppkitError, ValueError):
    """Data cannot be distributed as the program requests, or a process asks for data elsewhere."""


class StateError(AppkitError, TypeError):
    """A value of ``job.state``, or a result of ``job.once``, cannot be sent or stored."""


class RequestError(AppkitError, ValueError):
    """A request asks for a size that the job cannot have."""


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
    """A checkpoint cannot be written, or this program cannot continue from it."""


class JobLeave(BaseException):
    """This process leaves the job.

    It is not an ``Exception``, so that ``except Exception`` does not catch it. If the program
    catches it anyway, the next use of the job raises it again.
    """
