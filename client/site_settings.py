"""Settings of an administrator for all users of this host: the cluster that commands use.

Each command starts here, so YAML is loaded only if there is a file.
"""

from __future__ import annotations

import os
import stat

from pliant.client.client_errors import UsageError

#: The file with the settings. Only root may write it.
SITE_FILE = "/etc/pliant/client.yaml"
#: Folder of the users' socket of a server for all users.
USERS_DIR = "/run/pliant/users"
#: The account of the server, by name or number, instead of the one in the file.
ACCOUNT_VARIABLE = "PLIANT_SERVER_USER"
_KEYS = {"server_user", "users_dir"}


def users_dir() -> str:
    """Return the folder of the socket of this host's cluster for all users."""
    return _settings().get("users_dir", USERS_DIR)


def trusted_accounts() -> frozenset[int]:
    """Return the user ids under which this user accepts a server.

    These are root, the user, and the account that the environment or the file names.

    Raises:
        UsageError: there is no such account, or the file cannot be used.
    """
    chosen = os.environ.get(ACCOUNT_VARIABLE, "")
    where = ACCOUNT_VARIABLE
    if not chosen:
        chosen, where = _settings().get("server_user", ""), f"{SITE_FILE}: server_user"
    own = {0, os.geteuid()}
    return frozenset(own | {_uid(chosen, where)} if chosen else own)


def _uid(account: str, where: str) -> int:
    if account.isascii() and account.isdigit():
        return int(account)
    import pwd

    try:
        return pwd.getpwnam(account).pw_uid
    except (KeyError, ValueError):
        raise UsageError(
            f"{where}: there is no account {account!r} on this host; name the account of the server"
        ) from None


def _settings() -> dict[str, str]:
    """Return the settings for all users of this host; empty if there is no file.

    Raises:
        UsageError: another account than root could have written it, or it has a mistake.
    """
    try:
        found = os.stat(SITE_FILE, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"{SITE_FILE}: {error.strerror}") from None
    if found.st_uid != 0 or stat.S_IMODE(found.st_mode) & 0o022 or not stat.S_ISREG(found.st_mode):
        raise UsageError(
            f"{SITE_FILE}: it must be a file that belongs to root and that only root may write; "
            f"run `chown root {SITE_FILE}` and `chmod 644 {SITE_FILE}`"
        )
    from pliant.protos.daemons.config_files import ConfigFileError, read_config

    try:
        settings = read_config(SITE_FILE)
    except ConfigFileError as error:
        raise UsageError(f"{SITE_FILE}: {error}") from None
    for key, value in settings.items():
        if key not in _KEYS:
            raise UsageError(f"{SITE_FILE}: {key}: unknown key; known: {', '.join(sorted(_KEYS))}")
        if key == "users_dir" and not (isinstance(value, str) and os.path.isabs(value)):
            raise UsageError(f"{SITE_FILE}: {key}: expected an absolute path, got {value!r:.80}")
    return {key: str(value) for key, value in settings.items()}
