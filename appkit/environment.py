"""What the node controller tells a rank through its environment."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pliant.appkit.storage.checkpoint_key import KEY_FILE

#: Names the folder of a job's checkpoints.
CHECKPOINT = "PLIANT_CHECKPOINT"

#: Set by ``pliant check``.
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
    """The ``PLIANT_*`` variables of one rank."""

    job: int
    run: int
    #: The resize this process was started for; 0: the first start.
    resize: int
    epoch: int
    #: Started to join a running application.
    joins: bool
    control_fd: int
    #: Address of the server's application service when the process started.
    application_address: str
    #: File that holds the present one; empty: none.
    address_file: str
    token_file: str
    #: Where other nodes reach this one.
    node_address: str
    #: Global processor of each rank of this process's world.
    processors: tuple[int, ...]
    #: Folder of this job's checkpoints; empty: it takes none.
    checkpoint: str = ""
    #: Resizes for which the program waits at its first safe points: `pliant check` sets it.
    check_resizes: int = 0
    #: File with the key of its checkpoints; empty: an older node controller gives none.
    checkpoint_key_file: str = ""

    def token(self) -> bytes:
        """The application's secret for this (job, run).

        Raises:
            OSError: the file cannot be read.
        """
        with open(self.token_file, "rb") as file:
            return file.read().strip()

    def address(self) -> str:
        """Return the server's present address, or the one of the start if no file tells it."""
        try:
            with open(self.address_file, encoding="utf-8") as file:
                return file.read().strip() or self.application_address
        except OSError:
            return self.application_address


def read_environment(environ: Mapping[str, str] = os.environ) -> Environment | None:
    """The environment of a rank that Pliant started, or None for an ordinary process.

    Programs that a rank or a job script starts inherit the variables but not the control socket:
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
    )


def checkpoint_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where an ordinary MPI program is to save itself; None: nowhere.

    Inside a job the folder is the job's, and not for programs that it starts.
    """
    folder = "" if environ.get("PLIANT_JOB") else environ.get(CHECKPOINT, "")
    return Path(folder) if folder else None


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False
