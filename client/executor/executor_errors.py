"""Errors of futures and of the executor itself."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor

from pliant.client.client_errors import ClientError


class ExecutorBrokenError(ClientError, BrokenExecutor):
    """The executor cannot run any task, for example because no worker starts."""


class WorkerLostError(ClientError, BrokenExecutor):
    """A worker ended while it ran this task; the text names its job, its node and the reason."""


class TaskResultError(ClientError):
    """The result or the exception of a task cannot be sent from the worker to the executor."""


class RemoteTraceback(Exception):
    """The text of the traceback in the worker; the ``__cause__`` of an exception of a task."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"
