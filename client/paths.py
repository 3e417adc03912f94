"""Where a cluster keeps its state and its sockets."""

from __future__ import annotations

import os

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
