"""The Python client and the command line: ``jobsub``, ``jobstat``, ``jobdel``, ``jobctl``, ...

Programs use the names in ``__all__``: `Client`, the values that it returns, and its errors. These
names are stable; everything else here may change at any time.

Commands are started thousands of times. Therefore modules that load slowly, such as grpc and rich,
are imported where they are used, and public names on first use. Neither scheduling nor database
access lives here. May import: the standard library, grpc, rich, ``pliant.core``,
``pliant.protos``. Never ``pliant.server``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pliant.client.api import Availability, Client, Event, Job, Node, Why
    from pliant.client.client_errors import (
        ClientError,
        LostServerError,
        NoServerError,
        RequestError,
        SilentServerError,
        SubmitError,
        UsageError,
    )

__all__ = [
    "Availability",
    "Client",
    "ClientError",
    "Event",
    "Job",
    "LostServerError",
    "NoServerError",
    "Node",
    "RequestError",
    "SilentServerError",
    "SubmitError",
    "UsageError",
    "Why",
]


def __getattr__(name: str) -> object:
    """Import a public name on its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"{__name__}.{'client_errors' if name.endswith('Error') else 'api'}")
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
