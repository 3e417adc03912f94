"""The roles of this process in its job, and what it does at each safe point.

Rank 0 has the coordinator, which talks to the server. Before a shrink in which rank 0 leaves, the
rank that becomes the new rank 0 opens a standby coordinator. A joining rank waits at a loop until
it becomes a member. A process of a restarted job restores its data from a checkpoint.

The runtime connects the parts: `safe_point` chooses the action, `executor` carries a resize out,
`checkpoint` saves and restores, `coordinator` reports to the server.
"""

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from pliant.appkit.appkit_errors import JobLeave, ResizeFailed
from pliant.appkit.checkpoint.restore import Restorer, find_restorer
from pliant.appkit.checkpoint.save import Checkpoints
from pliant.appkit.coordinator.answer_offer import OnOffer, answer_offer
from pliant.appkit.coordinator.coordinator import Coordinator, ProgramInfo, ReportChannel
from pliant.appkit.coordinator.messages import (
    Answer,
    CheckpointOrder,
    Decision,
    Offer,
    RequestRecord,
    ResizeOutcome,
)
from pliant.appkit.coordinator.program_size_requests import Requests
from pliant.appkit.environment import Environment
from pliant.appkit.json_lines import open_control, serve
from pliant.appkit.loops import Loops, Position
from pliant.appkit.mpi.blocking_wait import blocking_waits
from pliant.appkit.mpi.connect import warm_up_connections
from pliant.appkit.mpi.membership import MembershipPhase
from pliant.appkit.performance.monitor import PerformanceMonitor
from pliant.appkit.performance.timing import ResizeTiming
from pliant.appkit.registered_objects import JobData
from pliant.appkit.resize.executor import Executor
from pliant.appkit.resize.hooks import ResizeInfo, call, format_error
from pliant.appkit.resize.joiner import Joiner
from pliant.appkit.resize.preallocate_memory import PreallocateOrder, Preallocator
from pliant.appkit.resize.prefetch_constant_arrays import Prefetcher, PrefetchOrder
from pliant.appkit.resize.rank_messages import from_plain, to_plain
from pliant.appkit.resize.safe_point import ActionSelector, JoinState, SafePointMessage
from pliant.core.values.sizes import Sizes
from pliant.faults import failpoint, message

if TYPE_CHECKING:
    from pliant.appkit.coordinator.step_stream import StepStream

#: Seconds that rank 0 waits for a joining rank to report why it failed.
_ERROR_WAIT_S = 0.5
#: Seconds that a safe point waits for a resize of ``pliant check``.
CHECK_RESIZE_WAIT_S = 60.0


class Runtime:
    """Carries out, in this process, what rank 0 decides at safe points: resizes, checkpoints.

    It also calls the program's hooks, and lets a joining or restarted process enter the job.
    """

    def __init__(
        self,
        environment: Environment | None,
        data: JobData,
        loops: Loops,
        sizes: Sizes | None,
        checkpoints: Checkpoints,
        evolving: bool = False,
    ) -> None:
        """Create the objects with which this process takes part in resizes and checkpoints.

        The environment determines which are needed.

        Args:
            environment: None in an ordinary MPI program, which no server manages.
            data: all that the program registers.
            loops: counts the loops of this process.
            sizes: sizes that the program can run on; None if it can run on any.
            checkpoints: takes the checkpoints of this job.
            evolving: whether the size changes only when the program asks for that.

        Raises:
            CheckpointError: this start continues from a checkpoint that cannot be used.
        """
        #: False in an ordinary MPI program.
        self.managed = environment is not None
        self.checkpoints = checkpoints
        #: Encoded results of ``job.once``, in the order of the calls, for joining ranks.
        self.once_results: list[bytes] = []
        self.before_hooks: list[Any] = []
        self.after_hooks: list[Any] = []
        self.on_offer: OnOffer | None = None
        self._environment = environment
        #: Number of resizes of ``pliant check`` for which the first safe points wait.
        self.awaited_check_resizes = environment.check_resizes if environment is not None else 0
        self._first_epoch = environment.epoch if environment is not None else 0
        self._member = data.membership
        self._loops = loops
        self._sizes, self._evolving = sizes, evolving
        self.performance = PerformanceMonitor(data.registry, loops)
        #: The program's own requests for other sizes.
        self.requests = Requests(self._member, sizes, self._send_request if self.managed else None)
        self._executor = Executor(data, self.report_fatal)
        self._preallocator = Preallocator(data.registry, self._member)
        self._prefetcher = Prefetcher(data, checkpoints.store)
        self._actions = ActionSelector(
            self._member, self.requests, checkpoints, self._preallocator, self._prefetcher
        )
        self._timing = ResizeTiming()  # of the resize that began last; rank 0 reports it
        self._coordinator: Coordinator | None = None
        self._standby: Coordinator | None = None
        self._lock = threading.Lock()
        self._joiner: Joiner | None = None
        self._step_stream: StepStream | None = None
        # A first run has no checkpoint; an ordinary MPI program is not told which run it is.
        store = None if environment is not None and environment.run <= 1 else checkpoints.store
        #: Set until this start, if it continues from a checkpoint, has reached the saved loop.
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
        """Return whether a safe point of this program can lead to a resize or a checkpoint.

        The result is equal on all processes.
        """
        return self.managed or self.checkpoints.is_enabled

    # ---------------------------------------------------------------- safe points

    def wait_for_check_resize(self) -> None:
        """Under ``pliant check``, wait on rank 0 until the server has ordered the next resize.

        ``pliant check`` tries a program with a number of resizes, one at each of the first safe
        points. The wait ends after `CHECK_RESIZE_WAIT_S` seconds at the latest. On other ranks, and
        after the last resize, this returns at once.
        """
        resized = self._member.allocation[0] - self._first_epoch
        if self._coordinator is None or resized >= self.awaited_check_resizes:
            self.awaited_check_resizes = 0
            return
        deadline = time.monotonic() + CHECK_RESIZE_WAIT_S
        while not self._actions.has_news(self._coordinator) and time.monotonic() < deadline:
            time.sleep(0.005)

    def next_message(self) -> SafePointMessage | None:
        """Return the message that rank 0 broadcasts at this safe point; None if there is none.

        Always None on the other ranks.
        """
        if not self._actions.has_news(self._coordinator):
            return None
        return self._actions.next_message(self._coordinator, self.performance)

    def handle(self, message: SafePointMessage, position: Position) -> None:
        """Carry out, on each process, the message that rank 0 has broadcast; collective.

        Raises:
            JobLeave: this process leaves the job.
        """
        self.requests.adopt(message.asked)
        if message.known is not None:
            self.performance.adopt(message.known)
        action = message.order
        if action is None:
            return
        self.performance.timer.discard_interval()
        match action:
            case CheckpointOrder():
                self.checkpoint(action, position)
            case PreallocateOrder():
                self._preallocator.execute(action)
            case PrefetchOrder():
                self._prefetcher.execute(action, self._coordinator)
            case Decision():
                self.resize(action, position)

    def stored_once_result(self) -> bytes:
        """Return the encoded result of the next ``job.once``, which this process does not compute.

        It comes from the checkpoint in a restarted job, otherwise from the application that runs.
        """
        source = self.restorer or self._joiner
        assert source is not None
        return source.next_once_result()

    def enter_loop(self, number: int) -> None:
        """Inform rank 0's coordinator that loop ``number`` has begun; ranks can then join in it."""
        if self._coordinator is not None:
            self._coordinator.enter_loop(number)

    def leave_loop(self) -> None:
        """Let rank 0's coordinator cancel all offers and resizes that have not begun.

        Called when the program has left its loop.
        """
        if self._coordinator is not None:
            self._coordinator.leave_loop()

    # ---------------------------------------------------------------- joining

    def join(self, loop: int) -> Position | None:
        """Wait at a loop until this rank joins the job, or is told that the job has left the loop.

        A process of a restarted job does not wait: it restores its data from the checkpoint.

        Args:
            loop: number of the loop.

        Returns:
            Where the job is; None if the job has already finished this loop.
        """
        if self.restorer is not None:
            return self._restore(self.restorer, loop)
        joiner = self._joiner
        assert joiner is not None
        self._preallocator.allocate_now(*joiner.size_and_rank())
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
        info = ResizeInfo(header.resize, header.before, self._member.size, False, True)
        call("after_resize", self.after_hooks, info)
        return state.position

    def _restore(self, restorer: Restorer, loop: int) -> Position | None:
        """Restore the data from a checkpoint if it was saved in loop ``loop``.

        Returns:
            Where the program continues; None if the checkpoint was saved in a later loop.
        """
        position = restorer.restore_at_loop(loop)
        if position is not None:
            self.restorer = None
            self.requests.adopt(None)
            self.enter_loop(loop)
            before = restorer.manifest.size
            info = ResizeInfo(0, before, self._member.size, False, True)
            call("after_resize", self.after_hooks, info)
        return position

    # ---------------------------------------------------------------- checkpoints

    def checkpoint(self, order: CheckpointOrder, position: Position) -> None:
        """Take a checkpoint, unless it is for a suspension that was withdrawn; collective.

        Calls the ``before_resize`` hooks first and, unless the processes leave, the
        ``after_resize`` hooks at the end, all with ``committed=False``.

        Raises:
            JobLeave: the job is suspended.
        """
        size = self._member.size
        info = ResizeInfo(order.number, size, size, order.leaves)
        call("before_resize", self.before_hooks, info)
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
        """Carry a resize out, unless it was withdrawn; collective over the job.

        Raises:
            JobLeave: this process leaves the job.
        """
        member = self._member
        before = member.size
        after = before + len(decision.joining) - len(decision.leaving)
        leaving = member.rank in decision.leaving
        info = ResizeInfo(decision.resize, before, after, leaving)
        call("before_resize", self.before_hooks, info)
        with blocking_waits():
            if self._begin(decision):
                self._execute(decision, position)
        self._preallocator.clear()
        self._prefetcher.reset()
        committed = member.allocation[0] == decision.epoch
        info = ResizeInfo(decision.resize, before, after, False, committed)
        call("after_resize", self.after_hooks, info)

    def _begin(self, decision: Decision) -> bool:
        """Wait until all processes have reached this safe point, then begin the resize; collective.

        The other processes may be far behind rank 0, because a broadcast does not make rank 0 wait,
        or they may still run a hook. The time limits of the server and of the joining ranks start
        when the resize begins. So rank 0 begins it only after a reduction over all processes.

        Returns:
            False if the resize was withdrawn or could not begin.
        """
        raw, coordinator = self._member.raw, self._coordinator
        assert raw is not None
        self._preallocator.wait(decision.resize)
        ready = np.array([self._prefetcher.is_ready(decision.resize)], dtype=np.int64)
        if coordinator is not None:
            ready &= coordinator.rendezvous.all_prefetched()
        raw.Allreduce(MPI.IN_PLACE, ready, op=MPI.MIN)
        self._executor.prefetched = bool(ready[0])
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
        """Grow or shrink, and report the outcome to the server on rank 0."""
        try:
            if decision.grows:
                state = to_plain(
                    JoinState(position, self.requests.asked, self.performance.history())
                )
                coordinator = self._coordinator
                lost = coordinator.lost_rank_reason if coordinator is not None else lambda: ""
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
            ResizeOutcome(
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
            ResizeOutcome(decision.resize, False, epoch, processors, failure.stage, reason)
        )

    # ---------------------------------------------------------------- roles

    def _on_control_order(self, order: dict[str, Any]) -> None:
        """Carry out an order that the shim, which supervises this rank, has sent.

        Called in the thread of the control socket.
        """
        if self._step_stream is not None:
            self._step_stream.on_order(order)
        elif order.get("op") == "standby":
            for _ in message("appkit.standby.order"):
                self._stand_by(order.get("resize", 0))

    def _stand_by(self, resize: int) -> None:
        """Open a standby coordinator here, because rank 0 will leave in ``resize``.

        This process becomes rank 0 and uses the coordinator if the resize is committed.
        """
        with self._lock:
            if self._coordinator is not None or self._member.phase is not MembershipPhase.MEMBER:
                return
            old, self._standby = self._standby, None
        if old is not None:
            old.close()
        standby = self._open_coordinator(standby=resize)
        with self._lock:
            self._standby = standby

    def _take_over(self) -> Coordinator:
        """Return the coordinator of the new rank 0: its standby coordinator, or else a new one."""
        with self._lock:
            coordinator, self._standby = self._standby, None
            if coordinator is None:
                coordinator = self._open_coordinator()
            self._coordinator = coordinator
        coordinator.enter_loop(self._loops.number)
        return coordinator

    def _open_coordinator(self, *, standby: int | None = None) -> Coordinator:
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
        coordinator.attach(self._make_channel(coordinator, environment))
        return coordinator

    def _make_channel(self, coordinator: Coordinator, environment: Environment) -> ReportChannel:
        if environment.is_step:
            from pliant.appkit.coordinator.step_stream import StepStream

            self._step_stream = StepStream(coordinator, self._control)
            return self._step_stream
        from pliant.appkit.coordinator.server_stream import CoordinatorStream

        return CoordinatorStream(coordinator, environment.address, environment.roots)

    def _answer_offer(self, offer: Offer) -> Answer:
        """Return the answer to an offer, by the program's ``on_offer`` or by the library's rules.

        Called in the thread that answers offers.
        """

        def policy(offer: Offer) -> str:
            return self.performance.objection(offer, self.requests.asked)

        return answer_offer(self.performance.with_cost(offer), self._sizes, self.on_offer, policy)

    def _send_request(self, asked: RequestRecord) -> None:
        if self._coordinator is not None:
            self._coordinator.send_request(asked)

    # ---------------------------------------------------------------- the end

    def report_fatal(self, error: BaseException) -> None:
        """Send the exception that aborts the job to the shim, this rank's supervising process."""
        if self.managed:
            with contextlib.suppress(OSError):  # the shim has ended
                self._control.send(op="failed", text=format_error(error))

    def close(self) -> None:
        """Close the coordinators of this process; nothing is sent to the server afterwards."""
        with self._lock:
            mine = (self._coordinator, self._standby)
            self._coordinator = self._standby = None
        for coordinator in mine:
            if coordinator is not None:
                coordinator.close()
        sys.stdout.flush()
