"""Carrying a resize out: join, check, move, commit, or everything as it was.

Until all processes have said "all moved" the old communicator and the old arrays are kept. Each
reduction at a growth runs over the merged communicator and then over the old one, so that the old
processes decide alike also when a newcomer dies between them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI

from pliant.appkit.contact import meet
from pliant.appkit.derived import DerivedComm
from pliant.appkit.errors import JobLeave, RegistrationMismatch, ResizeFailed
from pliant.appkit.membership import Membership, Phase
from pliant.appkit.messages import Decision
from pliant.appkit.newcomer import end_now
from pliant.appkit.plan import Crossing
from pliant.appkit.registry import Description, Registry
from pliant.appkit.state import StateEntry, pack, unpack


@dataclass(frozen=True, slots=True)
class Change:
    """What hooks are told about a resize."""

    resize: int
    #: Processes before and after (as planned, when it was not committed).
    before: int
    after: int
    #: In ``before_resize``: this process will leave.
    leaving: bool = False
    #: In ``after_resize``: it was carried out; else the job is as it was.
    committed: bool = False


@dataclass
class Belongings:
    """All that follows the job."""

    membership: Membership
    registry: Registry = field(default_factory=Registry)
    states: list[StateEntry] = field(default_factory=list)
    derived: list[DerivedComm] = field(default_factory=list)

    def description(self) -> list[Description]:
        """What must be the same on every process."""
        states: list[Description] = [["state", *entry.names()] for entry in self.states]
        return [*self.registry.description(), *states]


@dataclass
class Report:
    """Times and volume of one resize."""

    #: By step: join (growth only), check, move, commit; and total.
    seconds: dict[str, float] = field(default_factory=dict)
    bytes_moved: int = 0
    _since: float = field(default_factory=time.perf_counter)
    _began: float = field(default_factory=time.perf_counter)

    def lap(self, step: str) -> None:
        """A step is done."""
        now = time.perf_counter()
        self.seconds[step] = now - self._since
        self.seconds["total"] = now - self._began
        self._since = now


@dataclass(frozen=True, slots=True)
class Header:
    """What rank 0 tells all others before data move."""

    resize: int
    epoch: int
    processors: tuple[int, ...]
    before: int
    description: list[Description]
    states: bytes
    #: What a newcomer has to know about the loop; opaque here.
    position: Any


class Executor:
    """Grows and shrinks the job of this process."""

    def __init__(self, belongings: Belongings) -> None:
        """Work on these belongings."""
        self._all = belongings
        self._member = belongings.membership
        self._port = ""  # where newcomers are expected, on rank 0
        self._values: list[dict[str, Any]] = []  # of the states, to be taken over by the commit

    def invite(self, announce: Callable[[str], None]) -> None:
        """Open the port that `grow` accepts at and announce it; on rank 0 only, before `grow`.

        Newcomers connect while the job still agrees to grow: that shortens the pause.

        Raises:
            ResizeFailed: there is no port, or a newcomer is gone.
        """
        try:
            self._port = MPI.Open_port()
            announce(self._port)
        except (OSError, MPI.Exception) as fault:
            self._close_port()
            raise ResizeFailed("join", str(fault)) from fault

    def grow(self, decision: Decision, position: Any, report: Report) -> None:
        """Let newcomers join; collective over the job.

        Args:
            decision: the same on all.
            position: of the loop, for newcomers.
            report: is filled.

        Raises:
            ResizeFailed: everything is as it was.
        """
        old = self._communicator()
        processors = (*self._member.allocation[1], *decision.joining)
        merged = self._accept(old)
        report.lap("join")
        crossing = Crossing.growth(old.size, merged.size)
        try:
            header = self._header(decision, processors, position)
            self._transfer(merged, old, crossing, header, report)
        except ResizeFailed:
            merged.Free()  # not Disconnect, which would wait for newcomers that have ended
            raise
        self._commit(merged, decision.epoch, processors)
        old.Disconnect()
        self._rebuild()
        report.lap("commit")

    def shrink(self, decision: Decision, report: Report) -> None:
        """Let processes leave; collective over the job.

        Raises:
            ResizeFailed: everything is as it was.
            JobLeave: on those that leave.
        """
        old = self._communicator()
        crossing = Crossing.shrinkage(old.size, decision.leaving)
        processors = tuple(self._member.allocation[1][rank] for rank in crossing.new)
        self._transfer(old, old, crossing, self._header(decision, processors, None), report)
        stays = old.rank in crossing.new
        comm = old.Split(0 if stays else MPI.UNDEFINED, old.rank)
        if not stays:
            self._free_derived()
            old.Disconnect()
            self._member.leave(Phase.LEFT)
            raise JobLeave
        assert isinstance(comm, MPI.Intracomm)
        self._commit(comm, decision.epoch, processors)
        old.Disconnect()
        self._rebuild()
        report.lap("commit")

    def join(self, port: str, complain: Callable[[str], None]) -> Header:
        """Join a running application; collective over the newcomers. Ends the process on failure.

        Returns:
            What rank 0 told.
        """
        try:
            merged = self._connect(port)
            header: Header | str = merged.bcast(None, root=0)
            before = header.before if isinstance(header, Header) else 1
            crossing = Crossing.growth(before, merged.size)
            self._transfer(merged, None, crossing, header, Report(), complain)
        except (MPI.Exception, ResizeFailed, EOFError) as error:
            end_now(1, str(error))
            raise
        assert isinstance(header, Header)
        self._commit(merged, header.epoch, header.processors)
        self._rebuild()
        return header

    def _communicator(self) -> MPI.Intracomm:
        assert self._member.raw is not None
        return self._member.raw

    def _accept(self, old: MPI.Intracomm) -> MPI.Intracomm:
        error, merged = "", MPI.COMM_NULL
        try:
            merged = meet(lambda info: old.Accept(self._port, info, 0), high=False)
        except MPI.Exception as fault:
            error = f"newcomers did not connect: {fault}"
        finally:
            self._close_port()
        _agree("join", error, old, old)
        assert isinstance(merged, MPI.Intracomm)
        return merged

    def _close_port(self) -> None:
        if self._port:
            MPI.Close_port(self._port)
            self._port = ""

    def _connect(self, port: str) -> MPI.Intracomm:
        return meet(lambda info: MPI.COMM_WORLD.Connect(port, info, 0), high=True)

    def _header(
        self, decision: Decision, processors: tuple[int, ...], position: Any
    ) -> Header | str | None:
        """What rank 0 sends; a text if it cannot be made."""
        if self._member.rank != 0:
            return None
        try:
            states = pack(self._all.states)
        except Exception as error:  # whatever pickle raises
            return f"a value of job.state cannot be pickled: {error}"
        description = self._all.description()
        before = self._member.size
        return Header(
            decision.resize, decision.epoch, processors, before, description, states, position
        )

    def _transfer(
        self,
        comm: MPI.Intracomm,
        home: MPI.Intracomm | None,
        crossing: Crossing,
        header: Header | str | None,
        report: Report,
        complain: Callable[[str], None] | None = None,
    ) -> None:
        """Check, allocate, move, agree; leaves the new parts uncommitted beside the old ones.

        Raises:
            ResizeFailed: the new parts are dropped.
        """
        entries, joins = list(self._all.registry), self._member.raw is None
        try:
            if not joins:
                header = comm.bcast(header, root=0)
            error = header if isinstance(header, str) else ""
            if isinstance(header, Header):
                error = self._prepare(header, crossing, comm.rank)
            if error and complain is not None:
                complain(error)
            _agree("check", error, comm, home)
            report.lap("check")
            error = self._move(comm, crossing, report)
            report.lap("move")
            _agree("move", error, comm, home)
        except ResizeFailed:
            for entry in entries:
                entry.rollback()
            raise

    def _prepare(self, header: Header, crossing: Crossing, me: int) -> str:
        self._values = []
        try:
            if self._member.raw is None:
                _compare(self._all.description(), header.description)
            for entry in self._all.registry:
                entry.prepare(crossing, me)
        except (RegistrationMismatch, MemoryError) as error:
            return f"{type(error).__name__}: {error}"
        try:
            if me != 0:
                self._values = unpack(header.states)
        except Exception as error:  # whatever the values' own code raises
            return f"a value of job.state cannot be unpickled: {type(error).__name__}: {error}"
        return ""

    def _move(self, comm: MPI.Intracomm, crossing: Crossing, report: Report) -> str:
        try:
            for tag, entry in enumerate(self._all.registry):
                plan = entry.plan(crossing)
                report.bytes_moved += plan.bytes_moved
                entry.move(plan, comm, tag)
        except (MPI.Exception, MemoryError) as error:
            return str(error)
        return ""

    def _commit(self, comm: MPI.Intracomm, epoch: int, processors: tuple[int, ...]) -> None:
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        for entry in self._all.registry:
            entry.commit()
        for state, values in zip(self._all.states, self._values, strict=False):
            state.replace(values)
        self._free_derived()
        self._member.become(comm, epoch, processors)

    def _free_derived(self) -> None:
        for derived in self._all.derived:
            derived.free()

    def _rebuild(self) -> None:
        for derived in self._all.derived:
            derived.rebuild()


def _agree(stage: str, error: str, comm: MPI.Intracomm, home: MPI.Intracomm | None) -> None:
    """Decide together whether all is well.

    Args:
        stage: for the error.
        error: what is wrong here, empty: nothing.
        comm: all who take part.
        home: the communicator of the old processes, which has the last word and on which reasons
            are told; None on newcomers.

    Raises:
        ResizeFailed: somebody has an error; with the first text known here.
    """
    well = np.array([not error], dtype=np.int64)
    try:
        comm.Allreduce(MPI.IN_PLACE, well, op=MPI.MIN)
    except MPI.Exception as fault:
        well[0], error = 0, error or str(fault)
    if home is not None and home is not comm:
        home.Allreduce(MPI.IN_PLACE, well, op=MPI.MIN)
    if well[0]:
        return
    if home is not None:
        reasons = [reason for reason in home.allgather(error) if reason]
        error = reasons[0] if reasons else ""
    raise ResizeFailed(stage, error)


def _compare(mine: list[Description], theirs: list[Description]) -> None:
    """Check a newcomer's registrations.

    Raises:
        RegistrationMismatch: names the first difference.
    """
    for place, (here, there) in enumerate(zip(mine, theirs, strict=False), start=1):
        if here != there:
            raise RegistrationMismatch(
                f"registration {place}: the newcomer has {here}, the job has {there}"
            )
    if len(mine) != len(theirs):
        raise RegistrationMismatch(
            f"the newcomer registered {len(mine)} things, the job has {len(theirs)}"
        )
