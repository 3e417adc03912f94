"""The key with which a job signs its checkpoints.

A manifest is accepted only if it has the right HMAC, so that nobody can give a job the checkpoint
of another job, or one that no job has written. The server derives the key of a job from
the key of the cluster: it is the same for every run of the job and different for every job. A
program without Pliant uses a key of its user, in the user's state folder. No MPI.
"""

import hmac
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from pliant.appkit.storage.private_folders import PrivateFolder
from pliant.protos.daemons.private_paths import UntrustedPathError

#: Names the file with the job's key; the node controller writes it for the job's user alone.
KEY_FILE = "PLIANT_CHECKPOINT_KEY_FILE"
#: In the user's state folder.
OWN_KEY = "checkpoint.key"

_KEY_BYTES = 32

#: Returns a key; called only where a manifest is written or read.
KeySource = Callable[[], bytes]


def key_source(file: str) -> KeySource:
    """Return a function that reads the key from ``file``, or the user's own key if it is empty."""
    return (lambda: read_key(Path(file))) if file else own_key


def read_key(path: Path) -> bytes:
    """Read a signing key from a file that only this user may access.

    Raises:
        UntrustedPathError: Others can read or write the file, or it contains no key.
        OSError: The file cannot be read.
    """
    with PrivateFolder.open(path.parent) as folder, folder.read(path.name) as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise UntrustedPathError(f"{path} can be read by other accounts: remove it")
        key = file.read().strip()
    if len(key) < _KEY_BYTES:
        raise UntrustedPathError(f"{path} holds no key ({len(key)} bytes): remove it")
    return key


def own_key() -> bytes:
    """Return the key of this user's programs that run without Pliant; create it if missing.

    Raises:
        OSError: The key can be neither read nor created.
    """
    chosen = os.environ.get("PLIANT_STATE_DIR") or "~/.local/state/pliant"
    state = Path(chosen).expanduser().absolute()
    try:
        return read_key(state / OWN_KEY)
    except FileNotFoundError:
        pass
    with PrivateFolder.open(state, create=True) as folder:
        draft = f".{OWN_KEY}.{secrets.token_hex(8)}"
        with folder.write(draft) as file:
            file.write(secrets.token_hex(_KEY_BYTES).encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        folder.link_new(draft, OWN_KEY)
    return read_key(state / OWN_KEY)


def sign(key: bytes, number: int, body: bytes) -> str:
    """Return the signature of a manifest, the file that describes a checkpoint.

    Args:
        key: the key of the job.
        number: the format of the manifest.
        body: its contents.
    """
    return hmac.new(key, b"pliant checkpoint %d\n" % number + body, "sha256").hexdigest()


def is_signed(key: bytes, number: int, body: bytes, signature: bytes) -> bool:
    """Return whether ``signature`` is the valid signature of a manifest of format ``number``.

    The comparison takes the same time for all signatures, so that none can be found by trial.
    """
    return hmac.compare_digest(sign(key, number, body).encode("ascii"), signature)
