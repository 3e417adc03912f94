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

from pliant.appkit.checkpoint.store import Shelf
from pliant.appkit.coordinator.coordinator import Coordinator
from pliant.appkit.coordinator.messages import Decision
from pliant.appkit.data.constant import Written
from pliant.appkit.data.fill import provide
from pliant.appkit.data.handle import Handle
from pliant.appkit.kinds.job_data import Belongings
from pliant.appkit.resize.preallocate import MakeRoom, Room
from pliant.appkit.storage.chunks import Piece, PieceReader, PieceWriter
from pliant.appkit.storage.private_folders import PrivateFolder
from pliant.faults import failpoint

#: Who is not through in this time has failed: the data move in the pause then, seconds.
LIMIT_S = 60.0

_PREFIX = "constant-"

#: Of each constant the new part and its checksum, None where it is not needed.
Fetched = list[tuple[Handle, int] | None]


@dataclass(frozen=True, slots=True)
class Stock:
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
    def from_json(cls, data: dict[str, Any]) -> "Stock":
        """The inverse of ``to_json``."""
        pieces = tuple(tuple(map(Piece.from_json, own)) for own in data["pieces"])
        return cls(data["folder"], data["size"], tuple(data["versions"]), pieces)


class Step(Enum):
    """What a process is told to do."""

    WRITE = "write"
    READ = "read"
    #: Say whether it is through with that.
    ASK = "ask"
    #: The resize is off.
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Carry:
    """What rank 0 tells all at a safe point."""

    step: Step
    resize: int = 0
    #: Processes after the resize, and those of now that leave.
    size: int = 0
    leaving: tuple[int, ...] = ()
    #: WRITE: the name of the folder to write, among the job's checkpoints.
    folder: str = ""


class Errand:
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


class Ahead:
    """The part of one process."""

    def __init__(self, belongings: Belongings, shelf: Shelf | None) -> None:
        """Go through files on ``shelf``, if constants can go early."""
        self._constants, self._member = belongings.constants, belongings.membership
        self._shelf = shelf if belongings.early else None
        self._stock: Stock | None = None
        self._draft: Stock | None = None  # is being written
        self._carry: Carry | None = None  # what was told last
        self._errand: Errand | None = None
        self._through = False  # all are, with what was told last
        self._fault = ""
        self._warned = False
        self._room = Room(belongings.registry, belongings.membership)

    @property
    def active(self) -> bool:
        """Whether there is something to move."""
        return self._shelf is not None and bool(self._constants)

    # ---------------------------------------------------------------- rank 0

    def stirs(self, resize: int) -> bool:
        """Whether there may be something to tell; ``resize`` is in hand now, 0: none."""
        return self._room.stirs(resize) or self._constants_stir(resize)

    def _constants_stir(self, resize: int) -> bool:
        if not self.active:
            return False
        carry = self._carry
        if carry is None:
            return resize != 0
        if carry.resize != resize:
            return True
        return self._is_over() and not (carry.step is Step.READ and self._through)

    def due(self, coordinator: Coordinator) -> Decision | Carry | MakeRoom | None:
        """The resize that can begin, or what is to be done before it; None: neither."""
        if (room := self._room.due(coordinator)) is not None:
            return room
        carry = self._order(coordinator.taken())
        if carry is None and self._is_settled():
            return coordinator.proposed()
        return carry

    def _order(self, decision: Decision | None) -> Carry | None:
        if not self._constants_stir(decision.resize if decision is not None else 0):
            return None
        if decision is None:
            return Carry(Step.DROP)
        after = self._member.size + len(decision.joining) - len(decision.leaving)
        carry = Carry(Step.READ, decision.resize, after, decision.leaving)
        if self._carry is not None and self._carry.resize == decision.resize:
            return carry if self._through else replace(carry, step=Step.ASK)
        if self._stock is not None and self._stock.versions == self._versions():
            return carry
        name = f"{_PREFIX}{decision.resize}-{time.time_ns()}"
        return replace(carry, step=Step.WRITE, folder=name)

    def _is_settled(self) -> bool:
        if not self.active:
            return True
        carry = self._carry
        return carry is not None and carry.step is Step.READ and self._through

    # ---------------------------------------------------------------- all

    def obey(self, carry: Carry | MakeRoom, coordinator: Coordinator | None) -> None:
        """Do what rank 0 tells; collective over the job. On rank 0 the coordinator tells others."""
        if isinstance(carry, MakeRoom):
            self._room.obey(carry)
            return
        comm = self._member.raw
        assert comm is not None
        if carry.step is Step.ASK:
            self._through = all(comm.allgather(self._is_over()))
            return
        if carry.step is Step.WRITE:
            self._drop()
            self._write(carry, comm)
        elif carry.step is Step.READ:
            self._read(carry, comm)
        else:
            self._drop()
            return
        self._carry, self._through = carry, False
        if carry.step is Step.READ and self._stock is not None and coordinator is not None:
            sizes = {"before": comm.size, "after": carry.size}
            coordinator.provide(carry.resize, self._stock.to_json() | sizes)

    def make_room(self, size: int, rank: int) -> None:
        """Have the memory of a newcomer that will be this rank."""
        provide(self._room.make(size, rank))

    def well(self, resize: int) -> bool:
        """Whether this process has fetched all that it is to have after it, which begins."""
        self._room.settle(resize)
        carry, stock, errand = self._carry, self._stock, self._errand
        if carry is None or (carry.step, carry.resize) != (Step.READ, resize):
            return False  # another one took its place since
        if stock is None or errand is None:
            return False
        self._fault = errand.fault()
        if not self._fault and stock.versions != self._versions():
            self._fault = "it was changed meanwhile"
        if not self._fault:
            self._expect(errand.result)
        return not self._fault

    def agreed(self, well: bool) -> None:
        """All have what they are to have, or nobody uses it."""
        if self.active and not well:
            self._stock = None
            for constant in self._constants:
                constant.version = 0  # as newcomers have it, which have heard of no change
            self._warn()

    def forget(self) -> None:
        """The resize is over."""
        self._room.clear()
        self._drop()

    def _drop(self) -> None:
        self._carry = self._errand = self._draft = None
        for constant in self._constants:
            constant.drop()

    def fetch(self, message: dict[str, Any]) -> bool:
        """Read the parts of this newcomer; whether all is well."""
        try:
            failpoint("appkit.newcomer.fetch")
            stock = Stock.from_json(message)
            self._expect(
                self._fetch(stock, message["before"] + MPI.COMM_WORLD.rank, message["after"])
            )
            for constant, version in zip(self._constants, stock.versions, strict=True):
                constant.version = version
        except Exception as error:  # the program's own functions may be called
            self._fault = f"{type(error).__name__}: {error}"
            return False
        self._stock = stock
        return True

    # ---------------------------------------------------------------- the work

    def _write(self, carry: Carry, comm: MPI.Intracomm) -> None:
        """Begin to write; the parts are those of now, whatever the program does meanwhile."""
        handles, name = [constant.handle.twin({}) for constant in self._constants], carry.folder
        rank, shelf = comm.rank, self._shelf
        assert shelf is not None

        def work() -> list[tuple[Piece, ...]]:
            failpoint("appkit.ahead.write")
            with shelf.open(create=True) as base:
                if rank == 0:
                    _clear(base, name)
                with base.child(name, create=True) as folder:
                    written = _write_all(handles, folder, rank)
            for constant, handle in zip(self._constants, handles, strict=True):
                constant.note(handle.storage())
            return written

        self._draft = Stock(name, comm.size, self._versions())
        self._errand = Errand(work)

    def _read(self, carry: Carry, comm: MPI.Intracomm) -> None:
        if self._carry is not None and self._carry.step is Step.WRITE:
            self._share(comm)
        else:
            self._drop()
        stock, self._errand = self._stock, None
        if stock is None:
            self._errand = Errand(lambda: None)
            return
        stays = [rank for rank in range(comm.size) if rank not in carry.leaving]
        place = stays.index(comm.rank) if comm.rank in stays else None

        def work() -> Fetched:
            failpoint("appkit.ahead.read")
            for constant in self._constants:
                constant.verify()
            return self._fetch(stock, place, carry.size) if place is not None else []

        self._errand = Errand(work)

    def _share(self, comm: MPI.Intracomm) -> None:
        """Learn what all have written; collective."""
        errand, draft, self._stock = self._errand, self._draft, None
        assert errand is not None
        assert draft is not None
        mine = errand.fault()
        plain = [[piece.to_json() for piece in own] for own in errand.result or ()]
        told = comm.allgather((mine, draft.versions, self._versions(), plain))
        fault = next((fault for fault, *_ in told if fault), "")
        versions = {version for _, *both, _ in told for version in both}
        if not fault and len(versions) > 1:
            fault = "it was changed meanwhile, or job.thaw was not called on all processes"
        self._fault = fault if comm.rank == 0 else mine
        if not fault:
            each = zip(*(written for *_, written in told), strict=True)
            pieces = tuple(tuple(map(Piece.from_json, chain(*own))) for own in each)
            self._stock = replace(draft, pieces=pieces)

    def _fetch(self, stock: Stock, rank: int, size: int) -> Fetched:
        fetched: Fetched = []
        twins: dict[int, Handle] = {}
        assert self._shelf is not None
        with self._shelf.open() as base:
            folder = base.child(stock.folder)
        for constant, pieces in zip(self._constants, stock.pieces, strict=True):
            source = PieceReader(folder, pieces, stock.size)
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
        return self._errand is not None and self._errand.over

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
) -> list[tuple[Piece, ...]]:
    """Write this process's part of each constant."""
    written = []
    for place, handle in enumerate(handles):
        out = PieceWriter(folder, f"rank{rank}-{place}.bin", rank)
        try:
            handle.save(out)
        finally:
            out.close(durable=False)
        written.append(tuple(out.pieces))
    return written
