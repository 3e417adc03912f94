"""The Python client and the command line: ``jobsub``, ``jobstat``, ``jobdel``, ``jobctl``, ...

Programs use the names in ``__all__``: `Client` and `AsyncClient`, the values that they return,
`PliantExecutor`, and their errors. These names are stable; everything else here may change at any
time.

`commands` has the commands of users, `submission` turns their options into a job, and `connection`
sends requests to the server. `api` is the Python client, `cluster` is ``pliant up``. The other
packages are named after their commands.

Commands are started thousands of times. Therefore modules that load slowly, such as grpc and rich,
are imported where they are used, and public names on first use. Neither scheduling nor database
access lives here. May import: the standard library, grpc, rich, ``pliant.core``,
``pliant.protos``, ``pliant.charts``. Never ``pliant.server``.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `pliant`

if TYPE_CHECKING:
    from pliant.client.api import Availability, Client, Event, Job, Node, Phase, Usage, Why
    from pliant.client.api.async_client import AsyncClient
    from pliant.client.api.submit_options import SubmitOptions
    from pliant.client.client_errors import (
        ClientError,
        LostServerError,
        NoServerError,
        RequestError,
        SilentServerError,
        SubmitError,
        UsageError,
        WaitTimeoutError,
    )
    from pliant.client.executor.executor import PliantExecutor
    from pliant.client.executor.executor_errors import (
        ExecutorBrokenError,
        TaskResultError,
        WorkerLostError,
    )

__all__ = [
    "AsyncClient",
    "Availability",
    "Client",
    "ClientError",
    "Event",
    "ExecutorBrokenError",
    "Job",
    "LostServerError",
    "NoServerError",
    "Node",
    "Phase",
    "PliantExecutor",
    "RequestError",
    "SilentServerError",
    "SubmitError",
    "SubmitOptions",
    "TaskResultError",
    "Usage",
    "UsageError",
    "WaitTimeoutError",
    "Why",
    "WorkerLostError",
]

#: Modules of names that are neither in ``client_errors`` nor in ``pliant.client.api``.
_MODULES = {
    "AsyncClient": "api.async_client",
    "ExecutorBrokenError": "executor.executor_errors",
    "PliantExecutor": "executor.executor",
    "SubmitOptions": "api.submit_options",
    "TaskResultError": "executor.executor_errors",
    "WorkerLostError": "executor.executor_errors",
}


def __getattr__(name: str) -> object:
    """Import a public name on its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    usual = "client_errors" if name.endswith("Error") else "api"
    module = import_module(f"{__name__}.{_MODULES.get(name, usual)}")
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
