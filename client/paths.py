"""Where a cluster keeps its state and its sockets."""

from __future__ import annotations

import os

from pliant.client.errors import ClientError
from pliant.protos.daemons.private_paths import UntrustedPathError, open_private

#: Name of the users' socket in the run directory.
SOCKET = "server.sock"


def state_dir() -> str:
    """Return the directory with the database and the logs (``$PLIANT_STATE_DIR``)."""
    chosen = os.environ.get("PLIANT_STATE_DIR") or "~/.local/state/pliant"
    return os.path.abspath(os.path.expanduser(chosen))


def run_dir() -> str:
    """Return the directory with the sockets and the pid files (``$PLIANT_RUN_DIR``)."""
    chosen = os.environ.get("PLIANT_RUN_DIR")
    if not chosen:
        return os.path.join(state_dir(), "run")
    return os.path.abspath(os.path.expanduser(chosen))


def check_directories(state: str, run: str) -> None:
    """Refuse directories that another account can change.

    Raises:
        ClientError: another account owns or may change one of them.
    """
    try:
        os.close(open_private(state, shared=True))
        os.close(open_private(run))
    except UntrustedPathError as error:
        raise ClientError(str(error)) from None
