"""The exceptions of a malleable program.

::

    AppkitError (PliantError)
    ├── NotJoined             job.comm or the data were used before the first loop
    ├── StaleHandle           a handle was used after main() ended, a communicator after a resize
    ├── PendingRequests       a request was pending at a safe point; ends the process
    ├── LoopError             a loop or safe point is misplaced, or ranks leave a loop apart
    ├── RegistrationError
    │   ├── DuplicateName     two registrations of one name
    │   ├── LateRegistration  registered inside a loop
    │   └── RegistrationMismatch  a joining rank registered other things; the resize is rolled back
    ├── DistributionError     data cannot be distributed as requested (also a ValueError)
    ├── StateError            a value of job.state cannot be stored or sent (also a TypeError)
    ├── CheckpointError       the job cannot continue from its checkpoint
    ├── RequestError          a request for a size that the job cannot have (also a ValueError)
    ├── NoMPILibrary          mpi4py finds no MPI library (also an ImportError)
    ├── UnsupportedOperation  an MPI operation cannot work in a job that grows
    ├── WorldSizeMismatch     the ranks of the job do not share one world
    ├── JoiningRankLost       internal: a joining rank died; the resize is rolled back
    └── ResizeFailed          internal: a resize was rolled back; the server gets its text
    JobLeave (BaseException)  this process leaves the job: unwinds main() and ends with code 0

``pliant.appkit`` also exports ``SizesError``, which `pliant.core.values.sizes` defines because the
commands and the server raise it, too.
"""

from pliant.core.support.base_error import PliantError


class AppkitError(PliantError):
    """Base of all errors of this library."""


class NoMPILibrary(AppkitError, ImportError):
    """There is no MPI library that mpi4py could load."""


class NotJoined(AppkitError):
    """The communicator or the data of the job were used before the first loop.

    Only joining ranks lack the data. No rank may use ``job.comm`` there, except inside ``init=``,
    ``job.once`` and ``job.derive``.
    """


class StaleHandle(AppkitError):
    """A handle was used after ``main`` ended, or a communicator after a resize."""


class PendingRequests(AppkitError):
    """A request on ``job.comm`` was pending at a safe point, so a resize could not end.

    Programs cannot catch this error. It is reported, and the process and its job end.
    """


class LoopError(AppkitError):
    """A loop or safe point is misplaced, or ranks leave a loop at different iterations.

    It is misplaced if a joining rank could not enter there, as in a nested loop.
    """


class RegistrationError(AppkitError):
    """A registration is not valid."""


class DuplicateName(RegistrationError):
    """Two registrations have the same name."""


class LateRegistration(RegistrationError):
    """Something was registered inside a loop, so joining ranks would not have it."""


class RegistrationMismatch(RegistrationError):
    """A joining rank registered other things, or in another order, than the job.

    Programs do not see this error. The resize is rolled back, and the server gets the text.
    """


class DistributionError(AppkitError, ValueError):
    """Data cannot be distributed as requested, are on another process, or are constant."""


class StateError(AppkitError, TypeError):
    """A value of ``job.state`` cannot be stored or sent to other processes."""


class RequestError(AppkitError, ValueError):
    """A request asks for a size that the job cannot have, or has an invalid argument."""


class UnsupportedOperation(AppkitError):
    """The program called an MPI operation that cannot work on the ranks of a job that grows."""


class WorldSizeMismatch(AppkitError):
    """The ranks do not share one world, because Pliant does not serve their MPI library."""


class JoiningRankLost(AppkitError):
    """A joining rank died while this process waited for it; internal.

    The resize is rolled back, and the job continues.
    """


class ResizeFailed(AppkitError):
    """A resize was rolled back; internal.

    The job continues as it was before the resize, and the joining ranks end.

    Attributes:
        stage: ``join``, ``check`` or ``move``.
        reason: text for the user; empty if only a joining rank knows it.
    """

    def __init__(self, stage: str, reason: str) -> None:
        # Copying and unpickling call the class with these arguments.
        super().__init__(stage, reason)
        self.stage = stage
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.stage}: {self.reason}"


class CheckpointError(AppkitError):
    """This program cannot continue from its checkpoint.

    A checkpoint that cannot be written raises nothing: it is reported on stderr and to the server.
    """


class JobLeave(BaseException):
    """Raised in a process that leaves the job; it ends ``main`` there.

    It is not an ``Exception``, so that ``except Exception`` does not catch it. If the program
    catches it anyway, the next use of the job raises it again.
    """
