"""The environment variables through which the node controller describes its rank to a process."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pliant.appkit.storage.checkpoint_signature import KEY_FILE

#: Variable with the folder of the job's checkpoints.
CHECKPOINT = "PLIANT_CHECKPOINT"

#: Variable with the number of resizes that ``pliant check`` wants; see `Environment`.
CHECK_RESIZES = "PLIANT_CHECK_RESIZES"

_NEEDED = (
    "PLIANT_JOB",
    "PLIANT_ROLE",
    "PLIANT_CONTROL_FD",
    "PLIANT_APPLICATION_ADDRESS",
    "PLIANT_TOKEN_FILE",
)


@dataclass(frozen=True, slots=True)
class Environment:
    """The ``PLIANT_*`` environment variables, by which a node describes the job to a rank."""

    job: int
    run: int
    #: The resize for which this process was started; 0 for the first start.
    resize: int
    epoch: int
    #: Whether this process was started to join a running application.
    joins: bool
    control_fd: int
    #: Address of the server's application service when the process started.
    application_address: str
    #: File with the present address of that service; empty if there is none.
    address_file: str
    token_file: str
    #: Address at which other nodes reach this one.
    node_address: str
    #: Global processor of each rank in this process's ``MPI.COMM_WORLD``.
    processors: tuple[int, ...]
    #: Folder of the job's checkpoints; empty if it takes none.
    checkpoint: str = ""
    #: Number of resizes for which the program waits at its first safe points (``pliant check``).
    check_resizes: int = 0
    #: File with the key that signs the checkpoints; empty from an older node controller.
    checkpoint_key_file: str = ""
    #: File with the roots that the server's certificate must come from; empty without TLS.
    roots_file: str = ""
    #: Whether the program is a step of a script.
    is_step: bool = False

    def token(self) -> bytes:
        """Return the secret that proves to the server which run of the job this is.

        Raises:
            OSError: the file cannot be read.
        """
        with open(self.token_file, "rb") as file:
            return file.read().strip()

    def address(self) -> str:
        """Return the server's present address, from a file that the node controller updates.

        If the file cannot be read or is empty, return the address that was given at the start.
        """
        try:
            with open(self.address_file, encoding="utf-8") as file:
                return file.read().strip() or self.application_address
        except OSError:
            return self.application_address

    def roots(self) -> bytes | None:
        """Return the root certificates that this process trusts now, in PEM form; None without TLS.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.roots_file:
            return None
        with open(self.roots_file, "rb") as file:
            return file.read()


def read_environment(environ: Mapping[str, str] = os.environ) -> Environment | None:
    """Return the environment of a rank that Pliant has started; None in any other process.

    Programs that a rank or a job script starts inherit the variables but not the control socket, so
    they are ordinary processes.
    """
    if not all(environ.get(name) for name in _NEEDED):
        return None
    control_fd = int(environ["PLIANT_CONTROL_FD"])
    if not _is_socket(control_fd):
        return None
    processors = environ.get("PLIANT_PROCESSORS", "")
    return Environment(
        job=int(environ["PLIANT_JOB"]),
        run=int(environ.get("PLIANT_RUN", "0")),
        resize=int(environ.get("PLIANT_RESIZE", "0")),
        epoch=int(environ.get("PLIANT_EPOCH", "0")),
        joins=environ["PLIANT_ROLE"] == "join",
        control_fd=control_fd,
        application_address=environ["PLIANT_APPLICATION_ADDRESS"],
        address_file=environ.get("PLIANT_ADDRESS_FILE", ""),
        token_file=environ["PLIANT_TOKEN_FILE"],
        node_address=environ.get("PLIANT_NODE_ADDRESS", "127.0.0.1"),
        processors=tuple(int(part) for part in processors.split(",") if part),
        checkpoint=environ.get(CHECKPOINT, ""),
        check_resizes=int(environ.get(CHECK_RESIZES, "") or 0),
        checkpoint_key_file=environ.get(KEY_FILE, ""),
        roots_file=environ.get("PLIANT_ROOTS_FILE", ""),
        is_step=bool(environ.get("PLIANT_STEP")),
    )


def checkpoint_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder for checkpoints of a program that runs without Pliant.

    Returns:
        The folder that the user has set in the environment; None if there is none. Also None inside
        a job (``PLIANT_JOB``): its folder belongs to the job and not to programs that it starts.
    """
    folder = "" if environ.get("PLIANT_JOB") else environ.get(CHECKPOINT, "")
    return Path(folder) if folder else None


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False
