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

    Joining ranks lack both until they join. On all ranks, ``job.comm`` may be used before the first
    loop only inside ``init=``, ``job.once`` and ``job.derive``.
    """


class StaleHandle(AppkitError):
    """A handle of the job was used after ``main`` ended, or an old communicator after a resize.

    Handles are the objects that registrations such as ``job.block`` return. After a resize,
    ``job.comm`` returns a new communicator.
    """


class PendingRequests(AppkitError):
    """An MPI request on ``job.comm``, such as an Irecv, was pending at a safe point.

    A resize or suspension could then not disconnect the communicator. Programs cannot catch this
    error: it is reported to the user, and the process and its job end.
    """


class LoopError(AppkitError):
    """A loop or safe point is misplaced, or ranks leave a loop at different iterations.

    A place is wrong if a joining rank could not enter the job there, for example in a nested loop.
    """


class RegistrationError(AppkitError):
    """Data or a derived communicator could not be registered with the job."""


class DuplicateName(RegistrationError):
    """Two registrations have the same name."""


class LateRegistration(RegistrationError):
    """Something was registered inside a loop, so joining ranks would not have it."""


class RegistrationMismatch(RegistrationError):
    """A joining rank has registered other data than the job, or the same in another order.

    Programs do not see this error. The resize is rolled back, and the server gets the error's text.
    """


class DistributionError(AppkitError, ValueError):
    """Registered data cannot be divided among the processes, or may not be used in this way.

    For example, the program's ``owner`` function returned a rank that does not exist, or the
    program has assigned to an array that was registered with ``constant=True``.
    """


class StateError(AppkitError, TypeError):
    """A value of ``job.state`` cannot be stored or sent to other processes."""


class RequestError(AppkitError, ValueError):
    """A request asks for a size that the job cannot have, or has an invalid argument."""


class UnsupportedOperation(AppkitError):
    """The program called an MPI operation that cannot work on the ranks of a job that grows."""


class WorldSizeMismatch(AppkitError):
    """``MPI.COMM_WORLD`` does not contain all ranks that Pliant has started.

    The reason is that the program's MPI library is not one with which Pliant can start ranks.
    """


class JoiningRankLost(AppkitError):
    """A joining rank died while this process waited for it.

    Programs do not see this error. The resize is rolled back, and the job continues.
    """


class ResizeFailed(AppkitError):
    """A resize failed and was rolled back.

    Programs do not see this error. The job continues as it was before the resize, and the joining
    ranks end.

    Attributes:
        stage: where it failed: ``join``, ``check`` or ``move``.
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
    catches it anyway, the next use of the `Job` object raises it again.
    """
