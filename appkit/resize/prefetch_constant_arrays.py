"""Read arrays with ``constant=True`` through files before a resize, while the program computes.

When the server has ordered a resize (its GO), rank 0 broadcasts one step after another at safe
points (`safe_point.ActionSelector`). A background thread of each process does the work, without
MPI, and the program continues at once:

- *write*: each process writes its parts next to the job's checkpoints. The files serve all later
  resizes, until the program changes the data (``job.thaw``).
- *read*: each process that stays reads its new parts. Joining ranks, which have nothing else to do,
  read theirs, too.

When rank 0 has finished a step, it polls the others at safe points until all have finished. The
resize begins once all processes, including the joining ranks, have read their parts. If one process
has not, for whatever reason, no process uses its part, and the data are moved during the pause. So
a failure costs a longer pause or, if a thread hangs, this one resize, which the server withdraws.
The parts for a withdrawn resize are discarded. Files are used because no MPI transport survives the
death of a joining rank while it sends or receives.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from typing import Any

from mpi4py import MPI

from pliant.appkit.checkpoint.store import CheckpointStore
from pliant.appkit.coordinator.coordinator import Coordinator
from pliant.appkit.data.array_handles import Handle
from pliant.appkit.data.constant_arrays import Written
from pliant.appkit.registered_objects import JobData
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter, SavedArray
from pliant.appkit.storage.private_folders import PrivateFolder
from pliant.faults import failpoint

#: Seconds that a process may take for one step. After that, the data are moved during the pause.
LIMIT_S = 60.0
#: How the names of these files' folders begin, among the folders of the job's checkpoints.
FOLDER_PREFIX = "constant-"

#: For each constant, its new part with a checksum; None if this process needs no new part.
NewParts = list[tuple[Handle, int] | None]


@dataclass(frozen=True, slots=True)
class PrefetchFiles:
    """The files with the contents of all constant arrays, written by all processes.

    Constant arrays are those registered with ``constant=True``. The files are outdated once the
    program changes one of these arrays.
    """

    #: Name of the folder, among the folders of the job's checkpoints.
    folder: str
    #: Number of processes that wrote the files.
    size: int
    #: Version of each constant (see ``Constant.version``).
    versions: tuple[int, ...]
    pieces: Written = ()

    def to_json(self) -> dict[str, Any]:
        """Return a description of the files as JSON values, which joining ranks receive."""
        pieces = [[piece.to_json() for piece in own] for own in self.pieces]
        return {
            "folder": self.folder,
            "size": self.size,
            "versions": self.versions,
            "pieces": pieces,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "PrefetchFiles":
        """Return the files that `to_json` described; unknown keys are ignored."""
        pieces = tuple(tuple(map(SavedArray.from_json, own)) for own in data["pieces"])
        return cls(data["folder"], data["size"], tuple(data["versions"]), pieces)


class PrefetchStep(Enum):
    """A step of a prefetch: before a resize, processes write and read files with constant arrays.

    The values are part of the protocol.
    """

    #: Write the files.
    WRITE = "write"
    #: Read the new parts.
    READ = "read"
    #: Find out whether all processes have finished the last step.
    POLL = "ask"
    #: Discard everything: the resize was withdrawn.
    CANCEL = "drop"


@dataclass(frozen=True, slots=True)
class PrefetchOrder:
    """Rank 0's order for the next step of a prefetch. Field names are part of the protocol."""

    step: PrefetchStep
    resize: int = 0
    #: Number of processes after the resize.
    size: int = 0
    #: Present ranks that leave.
    leaving: tuple[int, ...] = ()
    #: For WRITE: the name of the folder to write.
    folder: str = ""


class BackgroundTask:
    """A function that runs in a daemon thread.

    The program tests at safe points whether it has ended, but never waits for it.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        """Start ``work`` in a new thread."""
        self.result: Any = None
        self._error: str | None = None
        self._since = time.monotonic()
        self._thread = threading.Thread(
            target=self._run, args=(work,), name="pliant-ahead", daemon=True
        )
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Return whether the work has ended, or has taken longer than `LIMIT_S` seconds."""
        late = time.monotonic() > self._since + LIMIT_S
        return late or not self._thread.is_alive()

    def error(self) -> str:
        """Return why the work failed; empty if it succeeded. Call it once `is_done` is True."""
        return "it takes too long" if self._error is None else self._error

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self.result = work()
            self._error = ""
        except Exception as error:  # the program's own functions may be called
            self._error = f"{type(error).__name__}: {error}"


class Prefetcher:
    """Writes and reads the constant arrays of this process before a resize.

    Constant arrays are those registered with ``constant=True``.
    """

    def __init__(self, data: JobData, store: CheckpointStore | None) -> None:
        """Keep the files in the folder of ``store``, next to the checkpoints.

        With None, nothing is prefetched.
        """
        self._constants, self._member = data.constants, data.membership
        self._store = store if data.can_prefetch else None
        #: The last order, other than POLL; None if there is none, or it was cancelled.
        self.order: PrefetchOrder | None = None
        #: Whether all processes had finished that order at the last POLL.
        self.all_done = False
        #: What all processes have written; None if they have not, or one has failed.
        self._files: PrefetchFiles | None = None
        #: What is being written; becomes ``_files`` if all processes succeed.
        self._draft: PrefetchFiles | None = None
        self._task: BackgroundTask | None = None
        self._error = ""
        self._warned = False

    @property
    def is_active(self) -> bool:
        """Return whether there are constant arrays, and a folder for the files of a prefetch."""
        return self._store is not None and bool(self._constants)

    @property
    def is_task_done(self) -> bool:
        """Return whether this process has finished its last prefetch step; False if it had none."""
        return self._task is not None and self._task.is_done

    @property
    def has_current_files(self) -> bool:
        """Return whether files with the present contents of all constant arrays exist."""
        return self._files is not None and self._files.versions == self._versions()

    # ---------------------------------------------------------------- running ranks

    def execute(self, order: PrefetchOrder, coordinator: Coordinator | None) -> None:
        """Carry out the step that rank 0 has ordered; collective over the job.

        The work continues in another thread when this returns.

        Args:
            order: the same on all processes.
            coordinator: on rank 0, to tell the joining ranks which files to read; None elsewhere.
        """
        comm = self._member.raw
        assert comm is not None
        if order.step is PrefetchStep.POLL:
            self.all_done = all(comm.allgather(self.is_task_done))
            return
        if order.step is PrefetchStep.WRITE:
            self.reset()
            self._write(order, comm)
        elif order.step is PrefetchStep.READ:
            self._read(order, comm)
        else:
            self.reset()
            return
        self.order, self.all_done = order, False
        if order.step is PrefetchStep.READ and self._files is not None and coordinator is not None:
            sizes = {"before": comm.size, "after": order.size}
            coordinator.send_prefetch(order.resize, self._files.to_json() | sizes)

    def is_ready(self, resize: int) -> bool:
        """Return whether this process has read its new parts for ``resize``, which is starting now.

        If it has, the resize will use these parts.
        """
        order, files, task = self.order, self._files, self._task
        if order is None or (order.step, order.resize) != (PrefetchStep.READ, resize):
            return False  # another resize has taken the place of the prefetched one
        if files is None or task is None:
            return False
        self._error = task.error()
        if not self._error and files.versions != self._versions():
            self._error = "it was changed meanwhile"
        if not self._error:
            self._stage(task.result)
        return not self._error

    def resolve(self, all_ready: bool) -> None:
        """Keep the files for later resizes if ``all_ready``, otherwise stop using them.

        ``all_ready`` is whether all processes have read their new parts from them.
        """
        if self.is_active and not all_ready:
            self._files = None
            for constant in self._constants:
                # Joining ranks have counted no change, and all processes must agree on versions.
                constant.version = 0
            self._warn()

    def reset(self) -> None:
        """Discard the prefetched parts, because the resize has ended or was withdrawn."""
        self.order = self._task = self._draft = None
        for constant in self._constants:
            constant.drop()

    # ---------------------------------------------------------------- joining ranks

    def read_files(self, message: dict[str, Any]) -> bool:
        """Read the new parts of this joining rank from the files; return whether that succeeded.

        Args:
            message: ``PrefetchFiles.to_json()`` with the numbers of processes ``before`` and
                ``after`` the resize, as rank 0 sent it.
        """
        try:
            failpoint("appkit.newcomer.fetch")
            files = PrefetchFiles.from_json(message)
            rank = message["before"] + MPI.COMM_WORLD.rank
            self._stage(self._fetch(files, rank, message["after"]))
            for constant, version in zip(self._constants, files.versions, strict=True):
                constant.version = version
        except Exception as error:  # the program's own functions may be called
            self._error = f"{type(error).__name__}: {error}"
            return False
        self._files = files
        return True

    # ---------------------------------------------------------------- the steps

    def _write(self, order: PrefetchOrder, comm: MPI.Intracomm) -> None:
        """Start to write this process's parts of the constant arrays to a file, in a thread.

        The thread uses copies of the handles, because the program may replace the arrays meanwhile.
        """
        handles, name = [constant.handle.clone({}) for constant in self._constants], order.folder
        rank, store = comm.rank, self._store
        assert store is not None

        def work() -> list[tuple[SavedArray, ...]]:
            failpoint("appkit.ahead.write")
            with store.open(create=True) as base:
                if rank == 0:
                    _remove_old_files(base, name)
                with base.child(name, create=True) as folder:
                    written = _write_all(handles, folder, rank)
            for constant, handle in zip(self._constants, handles, strict=True):
                constant.note(handle.buffers())
            return written

        self._draft = PrefetchFiles(name, comm.size, self._versions())
        self._task = BackgroundTask(work)

    def _read(self, order: PrefetchOrder, comm: MPI.Intracomm) -> None:
        """Start to read, in a thread, this process's new parts of the constant arrays; collective.

        If the order before this one was to write the arrays to files, the processes first exchange
        which pieces each has written.
        """
        if self.order is not None and self.order.step is PrefetchStep.WRITE:
            self._exchange_pieces(comm)
        else:
            self.reset()
        files, self._task = self._files, None
        if files is None:
            self._task = BackgroundTask(lambda: None)
            return
        stays = [rank for rank in range(comm.size) if rank not in order.leaving]
        new_rank = stays.index(comm.rank) if comm.rank in stays else None

        def work() -> NewParts:
            failpoint("appkit.ahead.read")
            for constant in self._constants:
                constant.verify()
            return self._fetch(files, new_rank, order.size) if new_rank is not None else []

        self._task = BackgroundTask(work)

    def _exchange_pieces(self, comm: MPI.Intracomm) -> None:
        """Exchange which pieces of the arrays each process has written; collective.

        If a process has failed, or an array was changed in the meantime, the files are not used.
        """
        task, draft, self._files = self._task, self._draft, None
        assert task is not None
        assert draft is not None
        own_error = task.error()
        plain = [[piece.to_json() for piece in own] for own in task.result or ()]
        told = comm.allgather((own_error, draft.versions, self._versions(), plain))
        error = next((error for error, *_ in told if error), "")
        versions = {version for _, *both, _ in told for version in both}
        if not error and len(versions) > 1:
            error = "it was changed meanwhile, or job.thaw was not called on all processes"
        self._error = error if comm.rank == 0 else own_error
        if not error:
            each = zip(*(written for *_, written in told), strict=True)
            pieces = tuple(tuple(map(SavedArray.from_json, chain(*own))) for own in each)
            self._files = replace(draft, pieces=pieces)

    def _fetch(self, files: PrefetchFiles, rank: int, size: int) -> NewParts:
        """Return the parts of all constant arrays for ``rank`` of ``size``, read from the files."""
        fetched: NewParts = []
        twins: dict[int, Handle] = {}
        assert self._store is not None
        with self._store.open() as base:
            folder = base.child(files.folder)
        for constant, pieces in zip(self._constants, files.pieces, strict=True):
            source = ArrayReader(folder, pieces, files.size)
            twin = constant.fetch(source, rank, size, twins)
            if twin is not None:
                twins[id(constant.handle)] = twin[0]
            fetched.append(twin)
        return fetched

    def _stage(self, parts: NewParts) -> None:
        """Store each prefetched part with its constant array, for use in the coming resize.

        ``parts`` is empty on a process that will leave.
        """
        for constant, part in zip(self._constants, parts, strict=False):
            constant.expect(part)

    def _versions(self) -> tuple[int, ...]:
        return tuple(constant.version for constant in self._constants)

    def _warn(self) -> None:
        """At the first failure of a prefetch only, print the reason on stderr."""
        if self._error and not self._warned:
            self._warned = True
            text = f"pliant: constant data moved in the pause of a resize: {self._error}"
            print(text, file=sys.stderr, flush=True)


def _remove_old_files(base: PrivateFolder, name: str) -> None:
    """Remove the folders with the files of earlier prefetches, all but ``name``."""
    for old in base.names():
        if old.startswith(FOLDER_PREFIX) and old != name:
            base.remove(old)


def _write_all(
    handles: Sequence[Handle], folder: PrivateFolder, rank: int
) -> list[tuple[SavedArray, ...]]:
    """Write this process's part of each constant array to a file of its own.

    Returns:
        For each array, the records of the pieces that were written.
    """
    written = []
    for place, handle in enumerate(handles):
        out = ArrayWriter(folder, f"rank{rank}-{place}.bin", rank)
        try:
            handle.save(out)
        finally:
            out.close(durable=False)
        written.append(tuple(out.arrays))
    return written
