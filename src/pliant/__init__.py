"""Pliant, a resource manager for MPI jobs that change size while they run.

`pliant.client` has the names for programs that submit jobs, `pliant.appkit` those for programs
that change size.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing it would delay the handling of Ctrl-C in commands

if TYPE_CHECKING:
    #: The version of the installed package.
    __version__: str


def __getattr__(name: str) -> object:
    """Return the version on its first use; reading the metadata would slow down every command."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    number = version(__name__)
    globals()[name] = number
    return number
