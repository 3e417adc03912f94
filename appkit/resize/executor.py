"""The steps of a resize: join, check, move, then commit or roll back.

The old communicator and the old arrays are kept until all processes have voted that the data have
been moved. In a growth, each vote runs over the merged communicator and then over the old one. So
the old processes come to the same result even if a joining rank dies between the two.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from mpi4py import MPI

from pliant.appkit.appkit_errors import (
    AppkitError,
    JobLeave,
    JoiningRankLost,
    RegistrationMismatch,
    ResizeFailed,
)
from pliant.appkit.coordinator.messages import Decision
from pliant.appkit.data.gather_metadata import error_text, gather_metadata
from pliant.appkit.data.registered_data import Description
from pliant.appkit.exit_without_finalize import end_now
from pliant.appkit.kinds.replicated_values import pack, unpack
from pliant.appkit.mpi import joining_rank_watch
from pliant.appkit.mpi.connect import connect_and_merge
from pliant.appkit.mpi.disconnect import disconnect
from pliant.appkit.mpi.membership import MembershipPhase
from pliant.appkit.performance.timing import ResizeTiming
from pliant.appkit.redistribution.range_exchange import NOT_ALIKE
from pliant.appkit.redistribution.transfer_plan import RankMap, TransferPlan
from pliant.appkit.registered_objects import JobData
from pliant.appkit.resize.success_votes import compare_registrations, vote
from pliant.faults import failpoint

#: Plan checksums are reduced together with their negation; 62 bits keep that representable.
_MARK = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Header:
    """The description of a resize that rank 0 broadcasts before the data move.

    It has the processors of all ranks after the resize, the registrations of the job, and the
    values of ``job.state``. The fields are part of the protocol.
    """

    resize: int
    epoch: int
    #: Global processor of each rank after the resize.
    processors: tuple[int, ...]
    #: Number of processes before the resize.
    before: int
    #: The registrations of the job (`JobData.resize_description`).
    description: list[Description]
    #: Packed values of ``job.state``.
    states: bytes
    #: A `JoinState` as plain data; None in a shrink. Not used here.
    position: Any
    #: Number of metadata exchanges that are needed before the plans can be made.
    rounds: int
    #: Whether all processes have prefetched their new parts of the constants.
    ahead: bool


def header_to_plain(header: Header | str | None) -> dict[str, Any] | str | None:
    """Return the fields of a header as a dict; an error text and None are returned unchanged."""
    if not isinstance(header, Header):
        return header
    return {each.name: getattr(header, each.name) for each in fields(header)}


def header_from_plain(told: dict[str, Any] | str | None) -> Header | str:
    """Return the header of a resize from the plain data that `header_to_plain` returned.

    Unknown fields are ignored.

    Returns:
        The header. If rank 0 sent an error text instead, or the header cannot be read, a text that
        says why.
    """
    if not isinstance(told, dict):
        return told or "rank 0 told nothing"
    known = {each.name for each in fields(Header)}
    try:
        return Header(**{name: value for name, value in told.items() if name in known})
    except TypeError as error:
        return f"the running application is of another version of Pliant: {error}"


class Executor:
    """Carries out the growths and shrinks of the job in this process."""

    def __init__(self, data: JobData, report_fatal: Callable[[BaseException], None]) -> None:
        """Prepare to carry out resizes of a job.

        Args:
            data: all that the program has registered.
            report_fatal: called with an error before it ends this process.
        """
        self._data, self._report_fatal = data, report_fatal
        self._member = data.membership
        #: Whether all processes have prefetched their new parts of the constants.
        self.prefetched = False
        #: On rank 0, the open MPI port at which joining ranks connect; otherwise empty.
        self._port = ""
        #: Values of ``job.state`` received from rank 0, which the commit stores.
        self._new_states: list[dict[str, Any]] = []
        #: The transfer plan of each entry in this resize.
        self._plans: list[TransferPlan] = []

    def open_port(self, send_port: Callable[[str], None]) -> None:
        """Open the MPI port of `grow`, and send the name of the port to the joining ranks.

        Called on rank 0 only, before `grow`. The joining ranks connect while the other processes
        are still on their way to `grow`, which shortens the pause.

        Raises:
            ResizeFailed: the port cannot be opened, or a joining rank has ended.
        """
        try:
            self._port = MPI.Open_port()
            send_port(self._port)
        except (OSError, MPI.Exception) as fault:
            self._close_port()
            raise ResizeFailed("join", str(fault)) from fault

    def grow(
        self, decision: Decision, position: Any, timing: ResizeTiming, lost: Callable[[], str]
    ) -> None:
        """Add the joining ranks to the job; collective over the job.

        Args:
            decision: the server's order for the growth, the same on all processes.
            position: a `JoinState` as plain data for the joining ranks: the loop and iteration at
                which they start, for example.
            timing: receives the seconds of each step.
            lost: called on rank 0; returns why a joining rank was lost, empty if none was.

        Raises:
            ResizeFailed: the growth failed; the job is unchanged.
        """
        old = self._communicator()
        processors = (*self._member.allocation[1], *decision.joining)
        failpoint("appkit.grow.accept")
        with joining_rank_watch.watching(joining_rank_watch.JoinWatch(old, lost)):
            merged = self._accept(old)
            failpoint("appkit.grow.joined")
            timing.end_step("join")
            rank_map = RankMap.expand(old.size, merged.size)
            try:
                header = self._header(decision, processors, position)
                self._transfer(merged, old, rank_map, header, timing)
            except ResizeFailed:
                merged.Free()  # not Disconnect, which would wait for dead joining ranks
                raise
        self._commit(merged, decision.epoch, processors)
        disconnect(old, self._report_fatal)
        self._rebuild()
        timing.end_step("commit")

    def shrink(self, decision: Decision, timing: ResizeTiming) -> None:
        """Remove the leaving ranks from the job; collective over the job.

        Args:
            decision: the server's order for the shrink, the same on all processes.
            timing: receives the seconds of each step.

        Raises:
            ResizeFailed: the shrink failed; the job is unchanged.
            JobLeave: this process leaves.
        """
        old = self._communicator()
        rank_map = RankMap.shrink(old.size, decision.leaving)
        processors = tuple(self._member.allocation[1][rank] for rank in rank_map.new)
        self._transfer(old, old, rank_map, self._header(decision, processors, None), timing)
        stays = old.rank in rank_map.new
        failpoint("appkit.shrink.split")
        comm = old.Split(0 if stays else MPI.UNDEFINED, old.rank)
        if not stays:
            self.leave()
            failpoint("appkit.leave")
            raise JobLeave
        assert isinstance(comm, MPI.Intracomm)
        self._commit(comm, decision.epoch, processors)
        disconnect(old, self._report_fatal)
        self._rebuild()
        timing.end_step("commit")

    def join(self, port: str, report_refusal: Callable[[str], None]) -> Header:
        """Join the running application; collective over the joining ranks.

        If joining fails, this process ends.

        Args:
            port: name of the MPI port.
            report_refusal: called with the reason if this process makes the resize fail.

        Returns:
            The header that rank 0 has broadcast.
        """
        try:
            failpoint("appkit.newcomer.connect")
            merged = self._connect(port)
            failpoint("appkit.newcomer.joined")
            header = header_from_plain(joining_rank_watch.bcast(merged, None))
            before = header.before if isinstance(header, Header) else 1
            rank_map = RankMap.expand(before, merged.size)
            self._transfer(merged, None, rank_map, header, ResizeTiming(), report_refusal)
        except (MPI.Exception, ResizeFailed, EOFError) as error:
            end_now(1, str(error))
            raise
        assert isinstance(header, Header)
        self._commit(merged, header.epoch, header.processors)
        self._rebuild()
        return header

    def leave(self) -> None:
        """End this process's membership in the job; collective over the ranks before the shrink."""
        old = self._communicator()
        self._free_derived()
        disconnect(old, self._report_fatal)
        self._member.leave(MembershipPhase.LEFT)

    def _communicator(self) -> MPI.Intracomm:
        assert self._member.raw is not None
        return self._member.raw

    def _accept(self, old: MPI.Intracomm) -> MPI.Intracomm:
        error, merged = "", MPI.COMM_NULL
        try:
            merged = connect_and_merge(lambda info: old.Accept(self._port, info, 0), high=False)
        except (MPI.Exception, JoiningRankLost) as fault:
            # The port stays open. Otherwise the next port would get the same tag, and messages of
            # the next joining ranks would match the receive that ucx leaves behind after this
            # failed Accept, so that the next growth would fail as well.
            error, self._port = f"joining ranks did not connect: {fault}", ""
        self._close_port()
        vote("join", error, old, old)
        assert isinstance(merged, MPI.Intracomm)
        return merged

    def _close_port(self) -> None:
        if self._port:
            MPI.Close_port(self._port)
            self._port = ""

    def _connect(self, port: str) -> MPI.Intracomm:
        return connect_and_merge(lambda info: MPI.COMM_WORLD.Connect(port, info, 0), high=True)

    def _header(
        self, decision: Decision, processors: tuple[int, ...], position: Any
    ) -> Header | str | None:
        """Return, on rank 0, the header to broadcast; on other ranks, return None.

        If a value of ``job.state`` cannot be sent, an error text is returned instead of the header.

        Args:
            decision: the server's order for the resize.
            processors: the number of each rank's processor in the whole cluster, after the resize.
            position: a `JoinState` as plain data for the joining ranks; None in a shrink.
        """
        if self._member.rank != 0:
            return None
        try:
            states = pack(self._data.states)
        except Exception as error:  # whatever pickle raises
            return str(error)
        return Header(
            decision.resize,
            decision.epoch,
            processors,
            self._member.size,
            self._data.resize_description(),
            states,
            position,
            self._data.registry.metadata_rounds,
            self.prefetched,
        )

    def _transfer(
        self,
        comm: MPI.Intracomm,
        home: MPI.Intracomm | None,
        rank_map: RankMap,
        header: Header | str | None,
        timing: ResizeTiming,
        report_refusal: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare, check and move all data; the new parts then exist in addition to the old ones.

        Args:
            comm: all processes that take part.
            home: the communicator of the old processes; None on joining ranks.
            rank_map: the ranks before and after the resize.
            header: on rank 0, the header, or a text why it could not be made; on joining ranks, the
                header or text that was received; None on others.
            timing: receives the seconds of each step.
            report_refusal: on joining ranks, called with an error of this process.

        Raises:
            ResizeFailed: a process has failed; the new parts are discarded.
        """
        joins = self._member.raw is None
        try:
            error = ""
            if not joins:
                header, error = self._broadcast_header(comm, header)
            error = header if isinstance(header, str) else error
            if isinstance(header, Header):
                error = self._prepare(header, rank_map, comm)
            if error and report_refusal is not None:
                report_refusal(error)
            self._check(header, error, comm, home)
            timing.end_step("check")
            failpoint("appkit.move.prepared")
            error = self._move(comm, timing)
            if error and report_refusal is not None:
                report_refusal(error)
            timing.end_step("move")
            failpoint("appkit.move.moved")
            vote("move", error, comm, home)
        except ResizeFailed:
            self._roll_back()
            raise

    def _broadcast_header(
        self, comm: MPI.Intracomm, header: Header | str | None
    ) -> tuple[Header | str | None, str]:
        """Return the header that rank 0 broadcasts, and an error text; collective over ``comm``.

        If a joining rank dies meanwhile, the header is None and the text says so. Otherwise the
        text is empty.
        """
        try:
            return header_from_plain(joining_rank_watch.bcast(comm, header_to_plain(header))), ""
        except JoiningRankLost as fault:
            return None, str(fault)

    def _check(
        self,
        header: Header | str | None,
        error: str,
        comm: MPI.Intracomm,
        home: MPI.Intracomm | None,
    ) -> None:
        """Check by a vote that all processes are prepared, and that their transfer plans agree.

        Args:
            header: the header of the resize; a text if rank 0 could not make one; None if it was
                not received.
            error: the error of this process; empty if it has none.
            comm: all processes that take part.
            home: the communicator of the old processes; None on joining ranks.

        Raises:
            ResizeFailed: a process has an error, or plans differ.
        """
        entries = list(self._data.registry)
        description = header.description if isinstance(header, Header) else []
        if header is None:  # this process failed before it received the header
            description = self._data.resize_description()
        marks = [0] * len(description)
        if not error:
            plans = zip(entries, self._plans, strict=True)
            marks[: len(entries)] = [entry.plan_checksum(plan) & _MARK for entry, plan in plans]
        differing = [entries[place].name for place in vote("check", error, comm, home, marks)]
        if differing:
            raise ResizeFailed("check", f"{', '.join(differing)}: {NOT_ALIKE}")

    def _roll_back(self) -> None:
        for entry in self._data.registry:
            entry.rollback()

    def _prepare(self, header: Header, rank_map: RankMap, comm: MPI.Intracomm) -> str:
        self._new_states, self._plans, registry, error = [], [], self._data.registry, ""
        for constant in self._data.constants:
            constant.ahead = header.ahead
        try:
            if self._member.raw is None:
                compare_registrations(self._data.resize_description(), header.description)
        except RegistrationMismatch as mismatch:
            error = f"RegistrationMismatch: {mismatch}"
        known, error = gather_metadata(list(registry), rank_map, comm, header.rounds, error)
        if error:
            return error
        try:
            for entry, told in zip(registry, known, strict=True):
                entry.prepare(rank_map, comm.rank, told)
            pairs = zip(registry, known, strict=True)
            self._plans = [entry.plan(rank_map, told) for entry, told in pairs]
        except (AppkitError, MemoryError) as fault:
            return error_text(fault)
        try:
            if comm.rank != 0:
                self._new_states = unpack(header.states)
        except Exception as fault:  # whatever the values' own code raises
            return f"a value of job.state cannot be unpickled: {type(fault).__name__}: {fault}"
        return ""

    def _move(self, comm: MPI.Intracomm, timing: ResizeTiming) -> str:
        try:
            together = zip(self._data.registry, self._plans, strict=True)
            for tag, (entry, plan) in enumerate(together):
                timing.bytes_moved += plan.bytes_moved
                failpoint("appkit.move.array")
                entry.move(plan, comm, tag)
        except (MPI.Exception, AppkitError, MemoryError) as error:
            return str(error)
        return ""

    def _commit(self, comm: MPI.Intracomm, epoch: int, processors: tuple[int, ...]) -> None:
        failpoint("appkit.commit")
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        for entry in self._data.registry:
            entry.commit()
        for state, values in zip(self._data.states, self._new_states, strict=False):
            state.replace(values)
        self._free_derived()
        self._member.become(comm, epoch, processors)

    def _free_derived(self) -> None:
        for derived in self._data.derived:
            derived.free()

    def _rebuild(self) -> None:
        for derived in self._data.derived:
            derived.rebuild()
