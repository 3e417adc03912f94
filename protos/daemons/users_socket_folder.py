"""The folder of the users' socket that all users of the host may connect to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pliant.core.support.base_error import PliantError
from pliant.protos.daemons.private_paths import UntrustedPathError, open_private


class UsersFolderError(PliantError, OSError):
    """The folder cannot hold the socket for all users; the text names the folder and the remedy."""


def prepare_users_folder(path: Path) -> None:
    """Make the folder of the users' socket if it is missing, and check its permissions.

    All users must be able to enter it, and none to change it.

    Raises:
        UsersFolderError: another account could change the folder, or not all users can enter it.
        OSError: the folder cannot be made.
    """
    if not path.exists():
        for folder in (*reversed(path.parents), path):
            if not folder.exists():
                folder.mkdir()
                folder.chmod(0o755)  # whatever the umask is
    try:
        os.close(open_private(path, shared=True))
    except UntrustedPathError as error:
        # The remedy of this error is meant for private folders.
        what = str(error).partition(";")[0]
        raise UsersFolderError(
            f"users_dir: {what}; it must belong to root or to the account of the server, and "
            "nobody else may write it"
        ) from None
    for folder in (path, *path.parents):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH:
            raise UsersFolderError(
                f"users_dir: other users cannot enter {folder} (mode {mode:04o}); run "
                f"`chmod o+x {folder}`, or name another folder"
            )
