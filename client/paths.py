"""Folders for the state and the sockets of a cluster."""

from __future__ import annotations

import os

from pliant.client.client_errors import ClientError
from pliant.client.site_settings import users_dir
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


def server_dir() -> str:
    """Return the directory of the users' socket that commands connect to.

    If the environment names a cluster of the user, or the user's own cluster has a socket, return
    the run directory of that cluster. Otherwise return the directory of the cluster for all users
    of this host. If no such directory exists, return the run directory of the user's own cluster.
    """
    own = run_dir()
    if os.environ.get("PLIANT_RUN_DIR") or os.environ.get("PLIANT_STATE_DIR"):
        return own
    if os.path.exists(os.path.join(own, SOCKET)):
        return own
    shared = users_dir()
    return shared if os.path.isdir(shared) else own


def check_directories(state: str, run: str) -> None:
    """Check that no other account can change the directories.

    Raises:
        ClientError: another account owns or may change one of them.
    """
    try:
        os.close(open_private(state, shared=True))
        os.close(open_private(run))
    except UntrustedPathError as error:
        raise ClientError(str(error)) from None
