"""The errors of the client, grouped by what the caller can do about them.

::

    ClientError
    ├── UsageError        correct the command line or the argument            exit 2
    ├── WaitTimeoutError  wait again: the job has not ended within the given time
    ├── RequestError      the request was understood and failed               exit 1
    │   └── SubmitError   a check before submission failed; names the field   exit 1
    └── NoServerError     start the server, or wait until it is back          exit 3
        ├── UntrustedServerError   another account could answer               exit 3
        └── LostServerError   it left: the request may have been done         exit 3
            └── SilentServerError   it is there, and does not answer          exit 3
"""

from __future__ import annotations

from pliant.core.support.base_error import PliantError


class ClientError(PliantError):
    """The base class of all errors that the client raises."""

    #: Exit code of a command that fails with this error.
    exit_code = 1


class UsageError(ClientError):
    """The command line or an argument is wrong."""

    exit_code = 2


class RequestError(ClientError, code="request-refused"):
    """The server failed or refused to carry out a request.

    Programs can test ``kind``, the kind of the failure, and ``field``, the wrong field of the
    request; both come from the server.
    """

    def __init__(self, message: str, *, kind: str = "refused", field: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.field = field


class SubmitError(RequestError):
    """A job was refused before it was sent. The text names the field, the fault and a remedy."""

    def __init__(self, field: str, message: str, remedy: str = "") -> None:
        super().__init__(
            f"{field}: {message}" + (f"; {remedy}" if remedy else ""), kind="invalid", field=field
        )


class WaitTimeoutError(ClientError, TimeoutError):
    """A job has not ended within the time that was given for waiting; the job continues."""


class StepFailedError(ClientError):
    """A step of a job script was refused, or its job ended before the step started."""


class NoServerError(ClientError):
    """No server answers on the socket."""

    exit_code = 3


class UntrustedServerError(NoServerError):
    """Another account owns the socket, its folder or the process that listens; nothing was sent."""


class LostServerError(NoServerError):
    """The server closed the connection or stayed silent; the request may have been carried out."""


class SilentServerError(LostServerError):
    """The server accepted a request, but has not answered within the limit."""
