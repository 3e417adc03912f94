"""The Python client and the command line: ``jobsub``, ``jobstat``, ``jobdel``, ``jobctl``, ...

Programs use the names in ``__all__``: `Client` and `AsyncClient`, the values that they return, and
their errors. These names are stable; everything else here may change at any time.

Commands are started thousands of times. Therefore modules that load slowly, such as grpc and rich,
are imported where they are used, and public names on first use. Neither scheduling nor database
access lives here. May import: the standard library, grpc, rich, ``pliant.core``,
``pliant.protos``. Never ``pliant.server``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

__all__ = [
    "AsyncClient",
    "Availability",
    "Client",
    "ClientError",
    "Event",
    "Job",
    "LostServerError",
    "NoServerError",
    "Node",
    "Phase",
    "RequestError",
    "SilentServerError",
    "SubmitError",
    "SubmitOptions",
    "Usage",
    "UsageError",
    "WaitTimeoutError",
    "Why",
]

#: Modules of names that are neither errors nor in ``pliant.client.api``.
_MODULES = {"AsyncClient": "api.async_client", "SubmitOptions": "api.submit_options"}


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
