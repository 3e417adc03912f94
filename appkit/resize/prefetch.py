"""Prepare a resize while the program computes: memory (`preallocate`) and constant data.

Constants go through files.

From GO on, rank 0 tells all at safe points what to do; a thread of each process does it, without
MPI, and the program goes on at once:

- *write*: each process writes its parts beside the job's checkpoints. Once: what is written serves
  every later resize, until the program changes the data (``job.thaw``).
- *read*: those who stay read their new parts; newcomers, who have nothing else to do, too.

When rank 0 is through with a step it *asks* the others, at safe points, until all are. Then, and
when the newcomers have theirs, the resize begins. Where one has not got its part, for whatever
reason, nobody's is used, and the data move in the pause: a fault costs a longer pause or, where a
thread hangs, this one resize, which the server takes back. What was fetched for a resize that is
taken back is forgotten. No transport of MPI survives the death of a newcomer under way, files do.
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
from pliant.appkit.coordinator.messages import Decision
from pliant.appkit.data.constant import Written
from pliant.appkit.data.fill import touch_pages
from pliant.appkit.data.handle import Handle
from pliant.appkit.kinds.job_data import JobData
from pliant.appkit.resize.preallocate import PreallocateOrder, Preallocator
from pliant.appkit.storage.chunks import ArrayReader, ArrayWriter, SavedArray
from pliant.appkit.storage.private_folders import PrivateFolder
from pliant.faults import failpoint

#: Who is not through in this time has failed: the data move in the pause then, seconds.
LIMIT_S = 60.0

_PREFIX = "constant-"

#: Of each constant the new part and its checksum, None where it is not needed.
Fetched = list[tuple[Handle, int] | None]


@dataclass(frozen=True, slots=True)
class PrefetchFiles:
    """What was written."""

    #: Its name, among the job's checkpoints.
    folder: str
    #: Processes that wrote it.
    size: int
    #: Of each constant.
    versions: tuple[int, ...]
    pieces: Written = ()

    def to_json(self) -> dict[str, Any]:
        """For newcomers."""
        pieces = [[piece.to_json() for piece in own] for own in self.pieces]
        return {
            "folder": self.folder,
            "size": self.size,
            "versions": self.versions,
            "pieces": pieces,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "PrefetchFiles":
        """The inverse of ``to_json``."""
        pieces = tuple(tuple(map(SavedArray.from_json, own)) for own in data["pieces"])
        return cls(data["folder"], data["size"], tuple(data["versions"]), pieces)


class Step(Enum):
    """What a process is told to do."""

    WRITE = "write"
    READ = "read"
    #: Say whether it is through with that.
    POLL = "ask"
    #: The resize is off.
    CANCEL = "drop"


@dataclass(frozen=True, slots=True)
class PrefetchOrder:
    """What rank 0 tells all at a safe point."""

    step: Step
    resize: int = 0
    #: Processes after the resize, and those of now that leave.
    size: int = 0
    leaving: tuple[int, ...] = ()
    #: WRITE: the name of the folder to write, among the job's checkpoints.
    folder: str = ""


class BackgroundTask:
    """Something that a thread does, which no program ever waits for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        """Begin."""
        self.result: Any = None
        self._error: str | None = None
        self._since = time.monotonic()
        self._thread = threading.Thread(
            target=self._run, args=(work,), name="pliant-ahead", daemon=True
        )
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether it is done, or has had its time."""
        late = time.monotonic() > self._since + LIMIT_S
        return late or not self._thread.is_alive()

    def fault(self) -> str:
        """What went wrong, empty: nothing. When it is over."""
        return "it takes too long" if self._error is None else self._error

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self.result = work()
            self._error = ""
        except Exception as error:  # the program's own functions may be called
            self._error = f"{type(error).__name__}: {error}"


class Prefetcher:
    """The part of one process."""

    def __init__(self, data: JobData, store: CheckpointStore | None) -> None:
        """Go through files on ``store``, if constants can go early."""
        self._constants, self._member = data.constants, data.membership
        self._store = store if data.early else None
        self._files: PrefetchFiles | None = None
        self._draft: PrefetchFiles | None = None  # is being written
        self._order_in_hand: PrefetchOrder | None = None  # what was told last
        self._task: BackgroundTask | None = None
        self._through = False  # all are, with what was told last
        self._fault = ""
        self._warned = False
        self._preallocator = Preallocator(data.registry, data.membership)

    @property
    def active(self) -> bool:
        """Whether there is something to move."""
        return self._store is not None and bool(self._constants)

    # ---------------------------------------------------------------- rank 0

    def has_work(self, resize: int) -> bool:
        """Whether there may be something to tell; ``resize`` is in hand now, 0: none."""
        return self._preallocator.has_work(resize) or self._constants_have_work(resize)

    def _constants_have_work(self, resize: int) -> bool:
        if not self.active:
            return False
        order = self._order_in_hand
        if order is None:
            return resize != 0
        if order.resize != resize:
            return True
        return self._is_over() and not (order.step is Step.READ and self._through)

    def next_order(
        self, coordinator: Coordinator
    ) -> Decision | PrefetchOrder | PreallocateOrder | None:
        """The resize that can begin, or what is to be done before it; None: neither."""
        if (room := self._preallocator.next_order(coordinator)) is not None:
            return room
        order = self._order(coordinator.current())
        if order is None and self._is_settled():
            return coordinator.ready_resize()
        return order

    def _order(self, decision: Decision | None) -> PrefetchOrder | None:
        if not self._constants_have_work(decision.resize if decision is not None else 0):
            return None
        if decision is None:
            return PrefetchOrder(Step.CANCEL)
        after = self._member.size + len(decision.joining) - len(decision.leaving)
        order = PrefetchOrder(Step.READ, decision.resize, after, decision.leaving)
        if self._order_in_hand is not None and self._order_in_hand.resize == decision.resize:
            return order if self._through else replace(order, step=Step.POLL)
        if self._files is not None and self._files.versions == self._versions():
            return order
        name = f"{_PREFIX}{decision.resize}-{time.time_ns()}"
        return replace(order, step=Step.WRITE, folder=name)

    def _is_settled(self) -> bool:
        if not self.active:
            return True
        order = self._order_in_hand
        return order is not None and order.step is Step.READ and self._through

    # ---------------------------------------------------------------- all

    def execute(
        self, order: PrefetchOrder | PreallocateOrder, coordinator: Coordinator | None
    ) -> None:
        """Do what rank 0 tells; collective over the job. On rank 0 the coordinator tells others."""
        if isinstance(order, PreallocateOrder):
            self._preallocator.execute(order)
            return
        comm = self._member.raw
        assert comm is not None
        if order.step is Step.POLL:
            self._through = all(comm.allgather(self._is_over()))
            return
        if order.step is Step.WRITE:
            self._drop()
            self._write(order, comm)
        elif order.step is Step.READ:
            self._read(order, comm)
        else:
            self._drop()
            return
        self._order_in_hand, self._through = order, False
        if order.step is Step.READ and self._files is not None and coordinator is not None:
            sizes = {"before": comm.size, "after": order.size}
            coordinator.send_prefetch(order.resize, self._files.to_json() | sizes)

    def preallocate(self, size: int, rank: int) -> None:
        """Have the memory of a newcomer that will be this rank."""
        touch_pages(self._preallocator.make(size, rank))

    def is_ready(self, resize: int) -> bool:
        """Whether this process has fetched all that it is to have after it, which begins."""
        self._preallocator.wait(resize)
        order, files, task = self._order_in_hand, self._files, self._task
        if order is None or (order.step, order.resize) != (Step.READ, resize):
            return False  # another one took its place since
        if files is None or task is None:
            return False
        self._fault = task.fault()
        if not self._fault and files.versions != self._versions():
            self._fault = "it was changed meanwhile"
        if not self._fault:
            self._expect(task.result)
        return not self._fault

    def resolve(self, well: bool) -> None:
        """All have what they are to have, or nobody uses it."""
        if self.active and not well:
            self._files = None
            for constant in self._constants:
                constant.version = 0  # as newcomers have it, which have heard of no change
            self._warn()

    def reset(self) -> None:
        """The resize is over."""
        self._preallocator.clear()
        self._drop()

    def _drop(self) -> None:
        self._order_in_hand = self._task = self._draft = None
        for constant in self._constants:
            constant.drop()

    def read_files(self, message: dict[str, Any]) -> bool:
        """Read the parts of this newcomer; whether all is well."""
        try:
            failpoint("appkit.newcomer.fetch")
            files = PrefetchFiles.from_json(message)
            self._expect(
                self._fetch(files, message["before"] + MPI.COMM_WORLD.rank, message["after"])
            )
            for constant, version in zip(self._constants, files.versions, strict=True):
                constant.version = version
        except Exception as error:  # the program's own functions may be called
            self._fault = f"{type(error).__name__}: {error}"
            return False
        self._files = files
        return True

    # ---------------------------------------------------------------- the work

    def _write(self, order: PrefetchOrder, comm: MPI.Intracomm) -> None:
        """Begin to write; the parts are those of now, whatever the program does meanwhile."""
        handles, name = [constant.handle.clone({}) for constant in self._constants], order.folder
        rank, store = comm.rank, self._store
        assert store is not None

        def work() -> list[tuple[SavedArray, ...]]:
            failpoint("appkit.ahead.write")
            with store.open(create=True) as base:
                if rank == 0:
                    _clear(base, name)
                with base.child(name, create=True) as folder:
                    written = _write_all(handles, folder, rank)
            for constant, handle in zip(self._constants, handles, strict=True):
                constant.note(handle.buffers())
            return written

        self._draft = PrefetchFiles(name, comm.size, self._versions())
        self._task = BackgroundTask(work)

    def _read(self, order: PrefetchOrder, comm: MPI.Intracomm) -> None:
        if self._order_in_hand is not None and self._order_in_hand.step is Step.WRITE:
            self._share(comm)
        else:
            self._drop()
        files, self._task = self._files, None
        if files is None:
            self._task = BackgroundTask(lambda: None)
            return
        stays = [rank for rank in range(comm.size) if rank not in order.leaving]
        place = stays.index(comm.rank) if comm.rank in stays else None

        def work() -> Fetched:
            failpoint("appkit.ahead.read")
            for constant in self._constants:
                constant.verify()
            return self._fetch(files, place, order.size) if place is not None else []

        self._task = BackgroundTask(work)

    def _share(self, comm: MPI.Intracomm) -> None:
        """Learn what all have written; collective."""
        task, draft, self._files = self._task, self._draft, None
        assert task is not None
        assert draft is not None
        mine = task.fault()
        plain = [[piece.to_json() for piece in own] for own in task.result or ()]
        told = comm.allgather((mine, draft.versions, self._versions(), plain))
        fault = next((fault for fault, *_ in told if fault), "")
        versions = {version for _, *both, _ in told for version in both}
        if not fault and len(versions) > 1:
            fault = "it was changed meanwhile, or job.thaw was not called on all processes"
        self._fault = fault if comm.rank == 0 else mine
        if not fault:
            each = zip(*(written for *_, written in told), strict=True)
            pieces = tuple(tuple(map(SavedArray.from_json, chain(*own))) for own in each)
            self._files = replace(draft, pieces=pieces)

    def _fetch(self, files: PrefetchFiles, rank: int, size: int) -> Fetched:
        fetched: Fetched = []
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

    def _expect(self, fetched: Fetched) -> None:
        """Those that leave have fetched nothing."""
        for constant, coming in zip(self._constants, fetched, strict=False):
            constant.expect(coming)

    def _versions(self) -> tuple[int, ...]:
        return tuple(constant.version for constant in self._constants)

    def _is_over(self) -> bool:
        return self._task is not None and self._task.over

    def _warn(self) -> None:
        """Tell the user once."""
        if self._fault and not self._warned:
            self._warned = True
            text = f"pliant: constant data moved in the pause of a resize: {self._fault}"
            print(text, file=sys.stderr, flush=True)


def _clear(base: PrivateFolder, name: str) -> None:
    """Remove what was written for former resizes."""
    for old in base.names():
        if old.startswith(_PREFIX) and old != name:
            base.remove(old)


def _write_all(
    handles: Sequence[Handle], folder: PrivateFolder, rank: int
) -> list[tuple[SavedArray, ...]]:
    """Write this process's part of each constant."""
    written = []
    for place, handle in enumerate(handles):
        out = ArrayWriter(folder, f"rank{rank}-{place}.bin", rank)
        try:
            handle.save(out)
        finally:
            out.close(durable=False)
        written.append(tuple(out.arrays))
    return written
