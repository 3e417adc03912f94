"""The adaptation of one process: it observes, decides, plans and executes (after DYNACO).

Observing and deciding are the coordinator's and its session's, planning and executing the
executor's. Here is who has which role when: the first coordinator, the standby that will be the
next, the newcomer that becomes a member.
"""

import sys
import threading
from typing import Any

import numpy as np
from mpi4py import MPI

from pliant.appkit.contact import acquaint
from pliant.appkit.control import open_control, serve
from pliant.appkit.coordinator import Coordinator, Program
from pliant.appkit.decide import OnOffer, decide
from pliant.appkit.environment import Environment
from pliant.appkit.errors import JobLeave, ResizeFailed
from pliant.appkit.loops import Loops, Position
from pliant.appkit.membership import Phase
from pliant.appkit.messages import Answer, Decision, Offer, Outcome
from pliant.appkit.newcomer import Newcomer
from pliant.appkit.patience import patience
from pliant.appkit.resize import Belongings, Change, Executor, Report
from pliant.core.sizes import Sizes

#: How long the coordinator waits for a newcomer to say why it failed, seconds.
_COMPLAINT_WAIT_S = 0.5


class Agent:
    """Roles and hooks of this process. ``managed`` is False in an ordinary MPI program."""

    def __init__(
        self,
        environment: Environment | None,
        belongings: Belongings,
        loops: Loops,
        sizes: Sizes | None,
    ) -> None:
        """Take the role that the environment gives."""
        self.managed = environment is not None
        self.once: list[bytes] = []
        self.before: list[Any] = []
        self.after: list[Any] = []
        self.on_offer: OnOffer | None = None
        self._environment = environment
        self._member = belongings.membership
        self._loops = loops
        self._sizes = sizes
        self._executor = Executor(belongings)
        self._report = Report()  # of the resize that began last; rank 0 sends it
        self._coordinator: Coordinator | None = None
        self._standby: Coordinator | None = None
        self._lock = threading.Lock()
        self._newcomer: Newcomer | None = None
        if environment is not None:
            self._control = open_control(environment.control_fd)
            if environment.joins:
                acquaint(MPI.COMM_WORLD)
                self._newcomer = Newcomer(environment, self._control, MPI.COMM_WORLD.rank)
            else:
                serve(self._control, self._order)
                if self._member.rank == 0:
                    self._coordinator = self._open_coordinator()

    @property
    def newcomer(self) -> Newcomer:
        """The connections of a process that joins."""
        assert self._newcomer is not None
        return self._newcomer

    @property
    def ready(self) -> bool:
        """Whether a resize can begin; False on all but the coordinator."""
        return self._coordinator is not None and self._coordinator.ready

    def proposed(self) -> Decision | None:
        """The resize that is ready to begin; None on all but the coordinator."""
        return self._coordinator.proposed() if self._coordinator is not None else None

    def enter_loop(self, number: int) -> None:
        """A loop begins."""
        if self._coordinator is not None:
            self._coordinator.enter_loop(number)

    def leave_loop(self) -> None:
        """A loop is over: an open offer is withdrawn."""
        if self._coordinator is not None:
            self._coordinator.leave_loop()

    # ---------------------------------------------------------------- joining

    def join(self, loop: int) -> Position | None:
        """Wait at a loop and join there; None: the job is past this loop."""
        newcomer = self.newcomer
        port = newcomer.arrive(loop)
        if port is None:
            return None
        with patience():
            header = self._executor.join(port, newcomer.complain)
        newcomer.close()
        self._member.opened = True
        serve(self._control, self._order)
        position: Position = header.position
        self._call(self.after, Change(header.resize, header.before, self._member.size, False, True))
        return position

    # ---------------------------------------------------------------- resizing

    def adapt(self, decision: Decision, position: Position) -> None:
        """Carry a decision out, if it is not withdrawn meanwhile; collective over the job.

        Raises:
            JobLeave: this process leaves.
        """
        member = self._member
        before = member.size
        after = before + len(decision.joining) - len(decision.leaving)
        leaving = member.rank in decision.leaving
        self._call(self.before, Change(decision.resize, before, after, leaving))
        with patience():
            if self._begin(decision):
                self._execute(decision, position)
        committed = member.allocation[0] == decision.epoch
        self._call(self.after, Change(decision.resize, before, after, False, committed))

    def _begin(self, decision: Decision) -> bool:
        """Wait for everybody, then begin: only now do the clocks of server and newcomers run.

        The others may be far behind rank 0, which no Bcast holds back, or still in a hook.
        """
        raw, coordinator = self._member.raw, self._coordinator
        assert raw is not None
        raw.Barrier()
        self._report = Report()
        begun = np.zeros(1, dtype=np.int64)
        if coordinator is not None and coordinator.begin(decision.resize) is not None:
            begun[0] = 1
            try:
                if decision.grows:
                    self._executor.invite(coordinator.rendezvous.announce)
            except ResizeFailed as failure:
                self._failed(decision, failure)
                begun[0] = 0
        raw.Bcast(begun, root=0)
        return bool(begun[0])

    def _execute(self, decision: Decision, position: Position) -> None:
        try:
            if decision.grows:
                self._executor.grow(decision, position, self._report)
            else:
                self._executor.shrink(decision, self._report)
        except ResizeFailed as failure:
            self._failed(decision, failure)
        except JobLeave:
            self.close()
            raise
        else:
            self._committed(decision)

    def _committed(self, decision: Decision) -> None:
        if self._member.rank != 0:
            return
        coordinator = self._coordinator or self._take_over()
        epoch, processors = self._member.allocation
        coordinator.finish(
            Outcome(
                decision.resize,
                True,
                epoch,
                processors,
                seconds=self._report.seconds,
                bytes_moved=self._report.bytes_moved,
            )
        )

    def _failed(self, decision: Decision, failure: ResizeFailed) -> None:
        coordinator = self._coordinator
        if coordinator is None:
            return
        reason = failure.reason
        if not reason and decision.grows:
            reason = coordinator.rendezvous.complaint(_COMPLAINT_WAIT_S)
        epoch, processors = self._member.allocation
        coordinator.finish(
            Outcome(decision.resize, False, epoch, processors, failure.stage, reason)
        )

    def _call(self, hooks: list[Any], change: Change) -> None:
        for hook in hooks:
            hook(change)

    # ---------------------------------------------------------------- roles

    def _order(self, message: dict[str, Any]) -> None:
        """An order on the control socket, in the control thread."""
        if message.get("op") != "standby":
            return
        with self._lock:
            if self._coordinator is not None or self._member.phase is not Phase.MEMBER:
                return
            old, self._standby = self._standby, None
        if old is not None:
            old.close()
        standby = self._open_coordinator(standby=message.get("resize", 0))
        with self._lock:
            self._standby = standby

    def _take_over(self) -> Coordinator:
        """Become the coordinator: with the session that stands by, else with a new one."""
        with self._lock:
            coordinator, self._standby = self._standby, None
            if coordinator is None:
                coordinator = self._open_coordinator()
            self._coordinator = coordinator
        coordinator.enter_loop(self._loops.number)
        return coordinator

    def _open_coordinator(self, *, standby: int | None = None) -> Coordinator:
        from pliant.appkit.session import Session

        environment = self._environment
        assert environment is not None
        program = Program(
            environment=environment,
            membership=self._member,
            sizes=str(self._sizes) if self._sizes is not None else "",
            preferred=(self._sizes.preferred or 0) if self._sizes is not None else 0,
            decide=self._decide,
            progress=self._loops.progress,
            once=lambda: list(self.once),
        )
        coordinator = Coordinator(program, standby=standby, loop=self._loops.number)
        coordinator.attach(Session(coordinator, environment.address))
        return coordinator

    def _decide(self, offer: Offer) -> Answer:
        return decide(offer, self._sizes, self.on_offer)

    # ---------------------------------------------------------------- the end

    def close(self) -> None:
        """End sessions and listeners of this process; nothing is sent after it."""
        with self._lock:
            mine = (self._coordinator, self._standby)
            self._coordinator = self._standby = None
        for coordinator in mine:
            if coordinator is not None:
                coordinator.close()
        sys.stdout.flush()
