"""The folder of a world on a node: the order to start it, its shim, and how its ranks ended.

The folder exists until the server has acknowledged the exits of all ranks. From it, a restarted
controller takes over worlds that it did not start. Shims use this module, so it imports nothing
that loads slowly.

==============  =========  =================================================================
file            writer     content
==============  =========  =================================================================
request.json    controller the order
token           controller the application's secret, mode 0400; removed when the world ends
checkpoint.key  controller the key of the job's checkpoints, mode 0400; removed like the token
nodes           controller ``host:slots`` per line; removed when the world ends
steps.sock      shim       the socket on which a script starts steps
hosts           controller ``host slots=N`` per line, for Open MPI; removed when the world ends
server.address  controller the server's present address, on a node with a certificate
roots.pem       controller the roots that the application trusts, on such a node
shim            shim       a link to its identity; made once, so that a world has one shim at most
ranks           shim       ``rank pid start`` per line
exits           shim       one JSON object per ended rank, on the disk before it is reported
                           (when the disk is full: as soon as there is room)
==============  =========  =================================================================

The order and each exit carry protocol numbers, because another version of Pliant may read them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from pliant.faults import before_write
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.step_record import StepRecord, read_steps
from pliant.protos import versions

#: Exit codes of a launch that failed, as shells have them.
NOT_FOUND, NOT_USABLE = 127, 126

#: Valid names of a world, which are also the names of its folder and of its PMI key space.
WORLD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")

#: A mark in the name of a file.
_MARK = re.compile("%.", re.DOTALL)

#: Errors of reading a damaged world.
UNREADABLE = (OSError, ValueError, TypeError, KeyError)

#: The name of the file with the key of the job's checkpoints.
CHECKPOINT_KEY = "checkpoint.key"

#: The names of the files with which applications connect over TLS.
ADDRESS, ROOTS = "server.address", "roots.pem"

#: The names of the files with the nodes of the job, in the formats of MPICH and of Open MPI.
NODES, HOSTS = "nodes", "hosts"

#: The type of a request for a malleable step; rigid steps have the type ``mpi``.
MALLEABLE_STEP = "malleable"
#: The name of the socket on which a script starts steps.
STEP_SOCKET = "steps.sock"

#: Prefix of a folder that the controller has not completed; no world's name can begin with it.
_UNFINISHED = ".new-"


def to_text(value: bytes) -> str:
    """Return bytes as text that JSON can carry, without loss."""
    return value.decode("utf-8", "surrogateescape")


def to_bytes(value: str) -> bytes:
    """Return the bytes of a text that `to_text` made."""
    return value.encode("utf-8", "surrogateescape")


def open_mpi_hosts(nodes: bytes) -> bytes:
    """Convert lines ``host:slots`` to the lines ``host slots=N`` that Open MPI reads."""
    lines = (line.rpartition(b":") for line in nodes.splitlines())
    return b"".join(b"%s slots=%s\n" % (host, slots) for host, _, slots in lines if host)


@dataclass(slots=True)
class StartRequest:
    """An order to start the ranks of one ``MPI_COMM_WORLD`` on this node, as the spool keeps it.

    Texts from the server's order are converted by `to_text`, which also keeps bytes that are not
    UTF-8.
    """

    world: str
    job: int
    run: int
    resize: int
    type: str
    size: int
    ranks: list[tuple[int, int]]  # (rank in the world, global processor)
    argv: list[str]
    environment: dict[str, str]
    directory: str
    stdout: str
    stdin: str = ""
    stderr: str = ""
    umask: int = 0o022
    mapping: str = ""
    spans_nodes: bool = False
    grace_s: float = 5.0
    boot: str = ""
    #: End the ranks if no contact with the server was confirmed for `lease_s` + `stop_after_s`
    #: seconds. Never, if this is None.
    stop_after_s: float | None = None
    lease_s: float = 0.0
    #: Empty output files that were last modified before this time (seconds since the epoch).
    truncate_before: float = 0.0
    #: Last confirmed contact at the time of the order, on the monotonic clock of ``boot``.
    contact: float = 0.0
    uid: int = field(default_factory=os.getuid)
    #: Tasks that the shim and its descendants may have; 0 if there is no limit.
    max_tasks: int = 0
    #: Whether the root helper starts the shim, as the user with this id.
    by_helper: bool = False
    #: Memory that all processes of the job on this node may have together when this world starts,
    #: and the share of each rank in it; 0 if there is no limit.
    memory_bytes: int = 0
    memory_per_rank_bytes: int = 0
    #: The CPUs of each local rank, in the order of `ranks`; empty if ranks are not bound.
    cpus: list[list[int]] = field(default_factory=list)
    #: Whether all ranks of the job on this node share the CPUs of all of them.
    shares_cpus: bool = False
    #: By kind, the devices of each local rank, in the order of `ranks`. A kind that this node has,
    #: but not for this job, has empty lists.
    devices: dict[str, list[list[int]]] = field(default_factory=dict)
    #: Name of the node.
    node_name: str = ""
    #: Seconds between rows of the record of the load; 0 if the load is not recorded.
    record_load_s: float = 0.0
    #: The number in the job of rank 0 of this world, if ``%t`` in names of files is the number of
    #: the rank; None if the names have no marks.
    first_rank: int | None = None

    #: The variables of a transfer of staged files, which the shim sets; empty without such files.
    stage: dict[str, str] = field(default_factory=dict)

    @property
    def is_mpi(self) -> bool:
        """Return whether the ranks are MPI processes, to which the shim serves PMI."""
        return self.type in ("mpi", MALLEABLE_STEP)

    def is_held(self, rank: int) -> bool:
        """Return whether a rank has no process and only reserves a processor.

        This is so for all ranks of a script except rank 0, which is the script itself. It may start
        programs on the reserved processors.
        """
        return self.type == "script" and rank > 0

    def file_of(self, pattern: str, rank: int | None) -> str:
        """Return the name of a file of the job, from the pattern that the user has given.

        ``%t`` becomes the number of the rank in the job, or empty if ``rank`` is None, and ``%%``
        becomes ``%``. If the order says that file names have no such marks, nothing is replaced.
        """
        if self.first_rank is None:
            return pattern
        number = "" if rank is None else str(self.first_rank + rank)
        values = {"%t": number, "%%": "%"}
        return _MARK.sub(lambda mark: values.get(mark[0], mark[0]), pattern)

    def to_record(self) -> dict[str, Any]:
        """Return the request as a JSON object, with protocol numbers."""
        # Not `asdict`, which would copy the environment piece by piece.
        return {each.name: getattr(self, each.name) for each in fields(self)} | versions.numbers()

    @classmethod
    def from_record(cls, origin: str, record: dict[str, Any]) -> StartRequest:
        """Read a request from an object that `to_record` of this or another version has made.

        Args:
            origin: the source of the object, for error messages.
            record: the object.

        Raises:
            ProtocolError: this version of Pliant cannot read it.
            ValueError, TypeError, KeyError: the object is damaged.
        """
        versions.check_record(origin, record)
        places = [(rank, processor) for rank, processor in record["ranks"]]
        return cls(**{**versions.known_fields(cls, record), "ranks": places})


@dataclass(slots=True)
class SpooledExit:
    """How one rank ended; the spool keeps this until the server has acknowledged it."""

    rank: int
    processor: int
    code: int
    signal: int
    reason: str
    at: float
    #: Whether it was ended because the node had lost contact with the server.
    cut_off: bool = False
    #: Whether it was not started because of a fault of the node.
    node_fault: bool = False
    #: Whether it was not started because this node cannot start processes of the job's user.
    user_refused: bool = False
    #: Whether it has ended because its shim was killed or its node was restarted.
    shim_lost: bool = False
    #: The steps of the script, if the rank was one.
    steps: tuple[StepRecord, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """Return the exit as it is saved in the spool and sent to the controller."""
        return {**asdict(self), **versions.numbers()}

    @classmethod
    def from_record(cls, record: dict[str, Any], origin: str = "the end of a rank") -> SpooledExit:
        """Read an exit from an object that `to_record` of this or another version has made.

        Args:
            record: the object.
            origin: the source of the object, for error messages.

        Raises:
            ProtocolError: this version cannot read the record.
            ValueError, TypeError, KeyError: the record is damaged.
        """
        versions.check_record(origin, record)
        steps = read_steps(record.get("steps", []))
        return cls(**{**versions.known_fields(cls, record), "steps": steps})


class WorldFolder:
    """The folder of one world (set of ranks): its order, its shim, its ranks and their exits."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def create(
        cls,
        base: Path,
        request: StartRequest,
        token: bytes,
        nodes: bytes,
        checkpoint_key: bytes = b"",
        *,
        access: tuple[str, bytes] | None = None,
    ) -> WorldFolder:
        """Save an order in a new folder; return the folder, which gets its final name at the end.

        Args:
            base: the folder of all worlds.
            request: the order.
            token: the application's secret.
            nodes: a line ``host:slots`` for each node of the job.
            checkpoint_key: the key of the job's checkpoints; empty if it takes none.
            access: the server's address, and the root certificates (PEM) that applications trust;
                None if they do not connect over TLS.
        """
        unfinished = base / f"{_UNFINISHED}{request.world}"
        unfinished.mkdir(mode=0o700)
        try:
            _write(unfinished / "request.json", json.dumps(request.to_record()).encode(), 0o600)
            _write(unfinished / "token", token, 0o400)
            _write(unfinished / NODES, nodes, 0o400)
            if request.type == "script":
                _write(unfinished / HOSTS, open_mpi_hosts(nodes), 0o400)
            if checkpoint_key:
                _write(unfinished / CHECKPOINT_KEY, checkpoint_key, 0o400)
            if access is not None:
                _write(unfinished / ADDRESS, access[0].encode(), 0o400)
                _write(unfinished / ROOTS, access[1], 0o400)
            unfinished.rename(base / request.world)
        except OSError:
            _remove_folder(unfinished)  # the order may be repeated
            raise
        return cls(base / request.world)

    @property
    def token(self) -> Path:
        """Return the path of the application's secret."""
        return self.directory / "token"

    @property
    def nodes(self) -> Path:
        """Return the path of the list of nodes."""
        return self.directory / NODES

    def update_access(self, address: str, roots: bytes) -> None:
        """Replace the stored server address and roots, if the application connects over TLS.

        Raises:
            OSError: the files cannot be written; they are as before.
        """
        for name, content in ((ADDRESS, address.encode()), (ROOTS, roots)):
            path = self.directory / name
            if path.exists() and path.read_bytes() != content:
                draft = path.with_name(f".{name}.new")
                draft.unlink(missing_ok=True)
                _write(draft, content, 0o400)
                draft.replace(path)

    @property
    def _shim(self) -> Path:
        return self.directory / "shim"

    def request(self) -> StartRequest:
        """Read the order to start these ranks.

        Raises:
            ProtocolError: this version of Pliant cannot read the order, which is not damaged.
            OSError, ValueError, TypeError, KeyError: the order is damaged, see `UNREADABLE`.
        """
        path = self.directory / "request.json"
        data = json.loads(path.read_bytes())
        if not isinstance(data, dict):
            raise ValueError(f"{path}: expected an object")
        return StartRequest.from_record(str(path), data)

    def claim(self, identity: ProcessIdentity) -> bool:
        """Record that a process is the shim of these ranks, which have one shim at most.

        Returns:
            False if they have a shim already, or had one; then nothing is changed.
        """
        try:
            # Creating a link is atomic, content included, and fails if it exists.
            os.symlink(f"{identity.boot} {identity.pid} {identity.start}", self._shim)
        except FileExistsError:
            return False
        return True

    def shim(self) -> ProcessIdentity | None:
        """Return the process that starts and watches the ranks; None if there has been none yet.

        The process may have ended.
        """
        try:
            boot, pid, start, *_ = os.readlink(self._shim).split()
            return ProcessIdentity(boot, int(pid), int(start))
        except (OSError, ValueError):  # there is no link, or the file is not a link
            return None

    def has_started(self) -> bool:
        """Return whether ranks may have been started: there is a record of ranks or of exits.

        True even if the record is damaged.
        """
        return any((self.directory / name).exists() for name in ("ranks", "exits"))

    def save_ranks(self, ranks: Iterable[tuple[int, ProcessIdentity]]) -> None:
        """Save which processes the ranks are, in case the shim is killed."""
        lines = [f"{rank} {who.boot} {who.pid} {who.start}\n" for rank, who in ranks]
        with open(self.directory / "ranks", "a", encoding="ascii") as file:
            before_write()
            file.write("".join(lines))

    def ranks(self) -> dict[int, ProcessIdentity]:
        """Return, by rank, the processes of the ranks, as far as they were recorded."""
        found = {}
        for line in self._lines("ranks"):
            try:
                rank, boot, pid, start, *_ = line.split()
                found[int(rank)] = ProcessIdentity(boot, int(pid), int(start))
            except ValueError:
                continue  # damaged: these processes are found by their environment
        return found

    def save_exits(self, exits: Iterable[SpooledExit]) -> None:
        """Append exits to the file and sync it. If that raises an OSError, none has been saved."""
        lines = "".join(json.dumps(end.to_record()) + "\n" for end in exits)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        handle = os.open(self.directory / "exits", flags, 0o600)
        try:
            before = os.fstat(handle).st_size
            if before and os.pread(handle, 1, before - 1) != b"\n":
                lines = "\n" + lines  # a crash has cut the last line short
            try:
                _write_all(handle, lines.encode())
                os.fdatasync(handle)
            except OSError:
                os.ftruncate(handle, before)
                raise
        finally:
            os.close(handle)

    def exits(self) -> dict[int, SpooledExit]:
        """Return the saved exits by rank; if a rank has several, the first counts.

        Raises:
            ProtocolError: this version of Pliant cannot read them, although they are not damaged.
        """
        found: dict[int, SpooledExit] = {}
        for line in self._lines("exits"):
            try:
                end = SpooledExit.from_record(json.loads(line), str(self.directory / "exits"))
            except (ValueError, TypeError, KeyError, AttributeError):
                continue  # a crash cut it short, and another line was added to it
            found.setdefault(end.rank, end)
        return found

    def remove_secrets(self) -> None:
        """Remove the token, the checkpoint key and other files that only running ranks need."""
        lists = self.nodes, self.directory / HOSTS
        for path in (self.token, *lists, self.directory / CHECKPOINT_KEY):
            path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder and its files; files that cannot be removed are left."""
        _remove_folder(self.directory)

    def _lines(self, name: str) -> Iterator[str]:
        """Yield the complete lines of a file; a last line that a crash cut short is left out."""
        try:
            text = (self.directory / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                yield line


def world_folders(base: Path) -> Iterator[WorldFolder]:
    """Yield the folders of all worlds (sets of ranks) of a node.

    Folders that were not completely written are removed.

    Args:
        base: the folder that contains them.
    """
    for entry in sorted(base.iterdir()):
        if entry.name.startswith(_UNFINISHED):
            _remove_folder(entry)
        elif entry.is_dir():
            yield WorldFolder(entry)


def _remove_folder(path: Path) -> None:
    """Remove a folder of plain files; what cannot be removed is left without an error."""
    # Not `shutil`: it loads three compression libraries, whose pages each forked shim would copy.
    with suppress(OSError):
        for name in os.listdir(path):
            (path / name).unlink(missing_ok=True)
        path.rmdir()


def _write(path: Path, data: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        _write_all(handle, data)
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    before_write()
    view: Any = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
