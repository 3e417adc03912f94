"""Choose the action at a safe point: rank 0 decides, and `Job` broadcasts it.

`ActionSelector.next_action` is the only place where the order of actions is decided. The runtime of
each process then carries the broadcast `SafePointMessage` out (`Runtime.handle`).
"""

import time
from dataclasses import dataclass, replace

from pliant.appkit.checkpoint.save import Checkpoints
from pliant.appkit.coordinator.coordinator import Coordinator
from pliant.appkit.coordinator.messages import CheckpointOrder, Decision, RequestRecord
from pliant.appkit.coordinator.program_size_requests import Requests
from pliant.appkit.loops import Position
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.performance.monitor import PerformanceHistory, PerformanceMonitor
from pliant.appkit.resize.preallocate_memory import PreallocateOrder, Preallocator
from pliant.appkit.resize.prefetch_constant_arrays import (
    FOLDER_PREFIX,
    Prefetcher,
    PrefetchOrder,
    PrefetchStep,
)

#: One thing that all processes do at a safe point.
Action = Decision | CheckpointOrder | PrefetchOrder | PreallocateOrder


@dataclass(frozen=True, slots=True)
class SafePointMessage:
    """The message that rank 0 broadcasts at a safe point: the action that all processes must take.

    The message also contains the program's latest request for another size. The field names are
    part of the protocol.
    """

    #: The action to carry out; None if only the request has changed.
    order: Action | None
    #: The latest request of the program; None if it has made none.
    asked: RequestRecord | None
    #: Rank 0's measurements, sent with a resize because rank 0 may leave; otherwise None.
    known: PerformanceHistory | None


@dataclass(frozen=True, slots=True)
class JoinState:
    """The state of the job that a joining rank receives in addition to the registered data.

    It has the loop and iteration to start at, the program's latest request for another size, and
    the measurements of rank 0. The field names are part of the protocol.
    """

    position: Position
    asked: RequestRecord | None
    known: PerformanceHistory


class ActionSelector:
    """Chooses, on rank 0, what all processes do at a safe point, such as a resize or checkpoint."""

    def __init__(
        self,
        membership: Membership,
        requests: Requests,
        checkpoints: Checkpoints,
        preallocator: Preallocator,
        prefetcher: Prefetcher,
    ) -> None:
        """Store the objects whose state determines the action that `next_action` returns."""
        self._member, self._requests, self._checkpoints = membership, requests, checkpoints
        self._preallocator, self._prefetcher = preallocator, prefetcher

    def has_news(self, coordinator: Coordinator | None) -> bool:
        """Return whether there may be something to broadcast; always False on ranks other than 0.

        Called at every safe point, so it reads attributes only and takes no lock. The result may be
        True although `next_message` then returns None. It is never False when there is an action.

        Args:
            coordinator: this process's coordinator; None on all ranks but rank 0, and in a program
                that runs without Pliant.
        """
        if coordinator is not None and (
            coordinator.ready
            or coordinator.suspension.pending
            or coordinator.request_answer is not None
            or self._requests.has_changed
            or coordinator.current_id != self._preallocator.resize
            or self._prefetch_has_work(coordinator.current_id)
        ):
            return True
        return self._checkpoint_is_due()

    def next_message(
        self, coordinator: Coordinator | None, performance: PerformanceMonitor
    ) -> SafePointMessage | None:
        """Return the message that rank 0 broadcasts at this safe point; None if there is none.

        There is a message if all processes must do something (`next_action`), or if the state of
        the program's latest request for another size has changed.

        Args:
            coordinator: as in `has_news`.
            performance: the measurements of rank 0, which a message about a resize includes.
        """
        has_changed = False
        if coordinator is not None:
            self._requests.receive_answer(coordinator.take_request_answer())
            has_changed = self._requests.has_changed
        action = self.next_action(coordinator)
        if action is None and not has_changed:
            return None
        history = performance.history() if isinstance(action, Decision) else None
        return SafePointMessage(action, self._requests.asked, history)

    def next_action(self, coordinator: Coordinator | None) -> Action | None:
        """Return the action of all processes at this safe point; None if there is nothing to do.

        The first of these that applies is chosen:

        1. a suspension that the server ordered;
        2. preallocation, then prefetching, for the resize that the server has ordered (its GO);
        3. that resize, once it is prepared;
        4. a checkpoint that the program asked for.
        """
        action: Action | None = None
        if coordinator is not None:
            decision = coordinator.current()
            action = (
                coordinator.suspension.next_order()
                or self._preallocation(decision, coordinator.ready)
                or self._prefetch(decision)
            )
            if action is None and self._prefetch_is_done():
                action = coordinator.ready_resize()
        if action is None and self._checkpoint_is_due():
            action = CheckpointOrder()
        return action

    def _checkpoint_is_due(self) -> bool:
        return self._checkpoints.is_requested and self._member.rank == 0

    # ---------------------------------------------------------------- preparing a resize

    def _preallocation(self, decision: Decision | None, is_ready: bool) -> PreallocateOrder | None:
        """Return an order to allocate memory for a growth before it begins, or to release it.

        Memory is allocated when the server has ordered a growth that cannot begin yet, and released
        when that growth is withdrawn.

        Args:
            decision: the resize that the server has ordered; None if there is none.
            is_ready: whether that resize can begin.

        Returns:
            The order; None if memory need be neither allocated nor released now.
        """
        allocated_for = self._preallocator.resize
        if allocated_for and (decision is None or decision.resize != allocated_for):
            return PreallocateOrder()
        if allocated_for or decision is None or not decision.grows or is_ready:
            return None
        return PreallocateOrder(decision.resize, self._member.size + len(decision.joining))

    def _prefetch_has_work(self, resize: int) -> bool:
        """Return whether constant arrays need another prefetch step at this safe point.

        Args:
            resize: the resize that the server has ordered; 0 if there is none. A prefetch that was
                begun must then be cancelled.
        """
        prefetcher = self._prefetcher
        if not prefetcher.is_active:
            return False
        if prefetcher.order is None:
            return resize != 0
        if prefetcher.order.resize != resize:
            return True
        return prefetcher.is_task_done and not self._prefetch_is_done()

    def _prefetch(self, decision: Decision | None) -> PrefetchOrder | None:
        """Return the next prefetch step of all processes: write, poll, read or cancel.

        Args:
            decision: the resize that the server has ordered; None if there is none.

        Returns:
            The order for the step; None if no step is needed at this safe point.
        """
        if not self._prefetch_has_work(decision.resize if decision is not None else 0):
            return None
        if decision is None:
            return PrefetchOrder(PrefetchStep.CANCEL)
        prefetcher = self._prefetcher
        after = self._member.size + len(decision.joining) - len(decision.leaving)
        read = PrefetchOrder(PrefetchStep.READ, decision.resize, after, decision.leaving)
        if prefetcher.order is not None and prefetcher.order.resize == decision.resize:
            return read if prefetcher.all_done else replace(read, step=PrefetchStep.POLL)
        if prefetcher.has_current_files:
            return read
        name = f"{FOLDER_PREFIX}{decision.resize}-{time.time_ns()}"
        return replace(read, step=PrefetchStep.WRITE, folder=name)

    def _prefetch_is_done(self) -> bool:
        """Return whether all processes have finished reading their new parts of constant arrays.

        True also if there is nothing to prefetch.
        """
        prefetcher = self._prefetcher
        if not prefetcher.is_active:
            return True
        return (
            prefetcher.order is not None
            and prefetcher.order.step is PrefetchStep.READ
            and prefetcher.all_done
        )
