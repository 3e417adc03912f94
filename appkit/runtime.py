"""The adaptation of one process: it observes, decides, plans and executes (after DYNACO).

Observing and deciding are the coordinator's and its session's, planning and executing the
executor's. Here is who has which role when: the first coordinator, the standby that will be the
next, the joiner that becomes a member.
"""

import contextlib
import sys
import threading
import time
from typing import Any

import numpy as np
from mpi4py import MPI

from pliant.appkit.checkpoint.restore import Restorer, find_restorer
from pliant.appkit.checkpoint.save import Checkpoints
from pliant.appkit.coordinator.coordinator import Coordinator, ProgramInfo
from pliant.appkit.coordinator.messages import (
    Answer,
    CheckpointOrder,
    Decision,
    Offer,
    Outcome,
    RequestRecord,
)
from pliant.appkit.coordinator.offers import OnOffer, answer_offer
from pliant.appkit.coordinator.requests import Requests
from pliant.appkit.environment import Environment
from pliant.appkit.errors import JobLeave, ResizeFailed
from pliant.appkit.json_lines import open_control, serve
from pliant.appkit.kinds.job_data import JobData
from pliant.appkit.loops import Loops, Position
from pliant.appkit.mpi.blocking_wait import blocking_waits
from pliant.appkit.mpi.connect import warm_up_connections
from pliant.appkit.mpi.membership import Phase
from pliant.appkit.performance.monitor import PerformanceMonitor
from pliant.appkit.performance.timing import ResizeTiming
from pliant.appkit.resize.broadcast import JoinState, SafePointMessage
from pliant.appkit.resize.executor import Executor
from pliant.appkit.resize.hooks import ResizeInfo, call, format_error
from pliant.appkit.resize.joiner import Joiner
from pliant.appkit.resize.plain_messages import from_plain, to_plain
from pliant.appkit.resize.preallocate import PreallocateOrder
from pliant.appkit.resize.prefetch import Prefetcher, PrefetchOrder
from pliant.core.values.sizes import Sizes
from pliant.faults import failpoint, message

#: How long the coordinator waits for a joiner to say why it failed, seconds.
_ERROR_WAIT_S = 0.5
#: How long a safe point waits for a resize of ``pliant check``, seconds.
LINGER_S = 60.0


class Runtime:
    """Roles and hooks of this process. ``managed`` is False in an ordinary MPI program."""

    def __init__(
        self,
        environment: Environment | None,
        data: JobData,
        loops: Loops,
        sizes: Sizes | None,
        checkpoints: Checkpoints,
        evolving: bool = False,
    ) -> None:
        """Take the role that the environment gives.

        Raises:
            CheckpointError: this start goes on from a checkpoint, and it is of no use.
        """
        self.managed = environment is not None
        self.checkpoints = checkpoints
        self.once_results: list[bytes] = []
        self.before_hooks: list[Any] = []
        self.after_hooks: list[Any] = []
        self.on_offer: OnOffer | None = None
        self._environment = environment
        #: Resizes of ``pliant check`` that the first safe points wait for.
        self.awaited_check_resizes = environment.check_resizes if environment is not None else 0
        self._first_epoch = environment.epoch if environment is not None else 0
        self._member = data.membership
        self._loops = loops
        self._sizes, self._evolving = sizes, evolving
        self.performance = PerformanceMonitor(data.registry, loops)
        #: What the program asks for itself.
        self.requests = Requests(self._member, sizes, self._send_request if self.managed else None)
        self._executor = Executor(data, self.report_fatal)
        self._prefetcher = Prefetcher(data, checkpoints.store)
        self._timing = ResizeTiming()  # of the resize that began last; rank 0 sends it
        self._coordinator: Coordinator | None = None
        self._standby: Coordinator | None = None
        self._lock = threading.Lock()
        self._joiner: Joiner | None = None
        #: While this start goes on from a checkpoint and has not come to its loop.
        store = None if environment is not None and environment.run <= 1 else checkpoints.store
        self.restorer = find_restorer(store, data)
        if environment is not None:
            self._control = open_control(environment.control_fd)
            if environment.joins:
                warm_up_connections(MPI.COMM_WORLD)
                failpoint("appkit.newcomer.start")
                self._joiner = Joiner(environment, self._control, MPI.COMM_WORLD.rank)
            else:
                serve(self._control, self._on_control_order)
                if self._member.rank == 0:
                    self._coordinator = self._open_coordinator()

    @property
    def is_active(self) -> bool:
        """Whether something may happen at a safe point; alike on all processes."""
        return self.managed or self.checkpoints.is_enabled

    @property
    def ready(self) -> bool:
        """Whether there is something to tell all; False on all but rank 0."""
        coordinator = self._coordinator
        if coordinator is not None and (
            coordinator.ready
            or coordinator.suspension.pending
            or coordinator.request_answer is not None
            or self.requests.has_changed
            or self._prefetcher.has_work(coordinator.current_id)
        ):
            return True
        return self.checkpoints.is_requested and self._member.rank == 0

    def wait_for_check_resize(self) -> None:
        """Wait for the next resize of ``pliant check``, at a safe point; on rank 0 only."""
        resized = self._member.allocation[0] - self._first_epoch
        if self._coordinator is None or resized >= self.awaited_check_resizes:
            self.awaited_check_resizes = 0
            return
        deadline = time.monotonic() + LINGER_S
        while not self.ready and time.monotonic() < deadline:
            time.sleep(0.005)

    def proposed(self) -> SafePointMessage | None:
        """What is to be told to all; None on all but rank 0."""
        coordinator, news = self._coordinator, False
        if coordinator is not None:
            self.requests.receive_answer(coordinator.take_request_answer())
            news = self.requests.has_changed
        order = self._due()
        if order is None and not news:
            return None
        known = self.performance.history() if isinstance(order, Decision) else None
        return SafePointMessage(order, self.requests.asked, known)

    def _due(self) -> Decision | CheckpointOrder | PrefetchOrder | PreallocateOrder | None:
        """What is to be done at this safe point."""
        coordinator = self._coordinator
        if coordinator is not None:
            found = coordinator.suspension.next_order() or self._prefetcher.next_order(coordinator)
            if found is not None:
                return found
        return (
            CheckpointOrder() if self.checkpoints.is_requested and self._member.rank == 0 else None
        )

    def stored_once_result(self) -> bytes:
        """The next result of ``job.once``, for a process that did not run it."""
        source = self.restorer or self._joiner
        assert source is not None
        return source.next_once_result()

    def handle(self, message: SafePointMessage, position: Position) -> None:
        """Do what rank 0 tells; collective over the job.

        Raises:
            JobLeave: this process leaves.
        """
        self.requests.adopt(message.asked)
        if message.known is not None:
            self.performance.adopt(message.known)
        if message.order is not None:
            self.performance.timer.discard_interval()
        if isinstance(message.order, CheckpointOrder):
            self.checkpoint(message.order, position)
        elif isinstance(message.order, PrefetchOrder | PreallocateOrder):
            self._prefetcher.execute(message.order, self._coordinator)
        elif message.order is not None:
            self.resize(message.order, position)

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
        if self.restorer is not None:
            return self._restore(self.restorer, loop)
        joiner = self._joiner
        assert joiner is not None
        self._prefetcher.preallocate(*joiner.size_and_rank())
        port = joiner.wait_at_loop(loop, self._prefetcher.read_files)
        if port is None:
            return None
        with blocking_waits():
            header = self._executor.join(port, joiner.report_refusal)
        joiner.close()
        self._prefetcher.resolve(header.ahead)
        self._member.opened = True
        serve(self._control, self._on_control_order)
        state: JoinState = from_plain(header.position)
        self.requests.adopt(state.asked)
        self.performance.adopt(state.known)
        change = ResizeInfo(header.resize, header.before, self._member.size, False, True)
        call("after_resize", self.after_hooks, change)
        return state.position

    def _restore(self, restorer: Restorer, loop: int) -> Position | None:
        """Go on from a checkpoint, if it was taken in this loop."""
        position = restorer.restore_at_loop(loop)
        if position is not None:
            self.restorer = None
            self.requests.adopt(None)
            self.enter_loop(loop)
            before = restorer.manifest.size
            call(
                "after_resize",
                self.after_hooks,
                ResizeInfo(0, before, self._member.size, False, True),
            )
        return position

    # ---------------------------------------------------------------- checkpoints

    def checkpoint(self, order: CheckpointOrder, position: Position) -> None:
        """Take a checkpoint, if it is still wanted; collective over the job.

        To hooks it is a resize that is not carried out.

        Raises:
            JobLeave: the job is suspended.
        """
        size = self._member.size
        call("before_resize", self.before_hooks, ResizeInfo(order.number, size, size, order.leaves))
        suspension = self._coordinator.suspension if self._coordinator is not None else None
        with blocking_waits():
            leaves = self.checkpoints.execute(order, position, self.once_results, suspension)
            if leaves:
                self._executor.leave()
        if leaves:
            self.close()
            raise JobLeave
        call("after_resize", self.after_hooks, ResizeInfo(order.number, size, size))

    # ---------------------------------------------------------------- resizing

    def resize(self, decision: Decision, position: Position) -> None:
        """PrefetchOrder a decision out, if it is not withdrawn meanwhile; collective over the job.

        Raises:
            JobLeave: this process leaves.
        """
        member = self._member
        before = member.size
        after = before + len(decision.joining) - len(decision.leaving)
        leaving = member.rank in decision.leaving
        call(
            "before_resize", self.before_hooks, ResizeInfo(decision.resize, before, after, leaving)
        )
        with blocking_waits():
            if self._begin(decision):
                self._execute(decision, position)
        self._prefetcher.reset()
        committed = member.allocation[0] == decision.epoch
        call(
            "after_resize",
            self.after_hooks,
            ResizeInfo(decision.resize, before, after, False, committed),
        )

    def _begin(self, decision: Decision) -> bool:
        """Wait for everybody, then begin: only now do the clocks of server and newcomers run.

        The others may be far behind rank 0, which no Bcast holds back, or still in a hook.
        """
        raw, coordinator = self._member.raw, self._coordinator
        assert raw is not None
        well = np.array([self._prefetcher.is_ready(decision.resize)], dtype=np.int64)
        if coordinator is not None:
            well &= coordinator.rendezvous.all_prefetched()
        raw.Allreduce(MPI.IN_PLACE, well, op=MPI.MIN)
        self._executor.prefetched = bool(well[0])
        self._prefetcher.resolve(self._executor.prefetched)
        failpoint("appkit.resize.decided")
        self._timing = ResizeTiming()
        begun = np.zeros(1, dtype=np.int64)
        if coordinator is not None and coordinator.begin(decision.resize) is not None:
            begun[0] = 1
            failpoint("appkit.resize.begun")
            try:
                if decision.grows:
                    self._executor.open_port(coordinator.rendezvous.send_port)
            except ResizeFailed as failure:
                self._on_failed(decision, failure)
                begun[0] = 0
        raw.Bcast(begun, root=0)
        return bool(begun[0])

    def _execute(self, decision: Decision, position: Position) -> None:
        try:
            if decision.grows:
                state = to_plain(
                    JoinState(position, self.requests.asked, self.performance.history())
                )
                coordinator = self._coordinator
                lost = coordinator.lost_rank_reason if coordinator is not None else str
                self._executor.grow(decision, state, self._timing, lost)
            else:
                self._executor.shrink(decision, self._timing)
        except ResizeFailed as failure:
            self._on_failed(decision, failure)
        except JobLeave:
            self.close()
            raise
        else:
            self._on_committed(decision)

    def _on_committed(self, decision: Decision) -> None:
        self.performance.record_resize(decision.grows, self._timing)
        if self._member.rank != 0:
            return
        coordinator = self._coordinator or self._take_over()
        epoch, processors = self._member.allocation
        failpoint("appkit.outcome")
        coordinator.finish(
            Outcome(
                decision.resize,
                True,
                epoch,
                processors,
                seconds=self._timing.seconds,
                bytes_moved=self._timing.bytes_moved,
            )
        )
        failpoint("appkit.outcome.sent")

    def _on_failed(self, decision: Decision, failure: ResizeFailed) -> None:
        coordinator = self._coordinator
        if coordinator is None:
            return
        reason = failure.reason
        if not reason and decision.grows:
            reason = coordinator.rendezvous.wait_for_error(_ERROR_WAIT_S)
        epoch, processors = self._member.allocation
        coordinator.finish(
            Outcome(decision.resize, False, epoch, processors, failure.stage, reason)
        )

    # ---------------------------------------------------------------- roles

    def _on_control_order(self, order: dict[str, Any]) -> None:
        """An order on the control socket, in the control thread."""
        if order.get("op") == "standby":
            for _ in message("appkit.standby.order"):
                self._stand_by(order.get("resize", 0))

    def _stand_by(self, resize: int) -> None:
        """Open a session, for a resize after which this is the coordinator."""
        with self._lock:
            if self._coordinator is not None or self._member.phase is not Phase.MEMBER:
                return
            old, self._standby = self._standby, None
        if old is not None:
            old.close()
        standby = self._open_coordinator(standby=resize)
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
        from pliant.appkit.coordinator.server_stream import ServerStream

        environment = self._environment
        assert environment is not None
        program = ProgramInfo(
            environment=environment,
            membership=self._member,
            sizes=str(self._sizes) if self._sizes is not None else "",
            preferred=(self._sizes.preferred or 0) if self._sizes is not None else 0,
            answer_offer=self._answer_offer,
            progress=self.performance.progress,
            once=lambda: list(self.once_results),
            asked=lambda: self.requests.asked,
            on_request=self._evolving,
        )
        coordinator = Coordinator(program, standby=standby, loop=self._loops.number)
        coordinator.attach(ServerStream(coordinator, environment.address))
        return coordinator

    def _answer_offer(self, offer: Offer) -> Answer:
        def policy(offer: Offer) -> str:
            return self.performance.objection(offer, self.requests.asked)

        return answer_offer(self.performance.with_cost(offer), self._sizes, self.on_offer, policy)

    def _send_request(self, asked: RequestRecord) -> None:
        if self._coordinator is not None:
            self._coordinator.send_request(asked)

    # ---------------------------------------------------------------- the end

    def report_fatal(self, error: BaseException) -> None:
        """Tell the shim, which tells users, for what exception the job will be aborted."""
        if self.managed:
            with contextlib.suppress(OSError):  # the shim is gone: nobody to tell
                self._control.send(op="failed", text=format_error(error))

    def close(self) -> None:
        """End sessions and listeners of this process; nothing is sent after it."""
        with self._lock:
            mine = (self._coordinator, self._standby)
            self._coordinator = self._standby = None
        for coordinator in mine:
            if coordinator is not None:
                coordinator.close()
        sys.stdout.flush()
