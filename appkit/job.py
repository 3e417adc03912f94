"""`Job`: the object through which a malleable program uses this library."""

import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from pliant.appkit.appkit_errors import DistributionError, LoopError
from pliant.appkit.coordinator.answer_offer import OnOffer
from pliant.appkit.coordinator.program_size_requests import Request
from pliant.appkit.data.array_handles import Handle
from pliant.appkit.loop_exit_check import REMEDY, left_alone_message, waiting_for_others
from pliant.appkit.loops import Loops, Position
from pliant.appkit.mpi.derived_communicators import Derive, DerivedComm
from pliant.appkit.mpi.membership import MembershipPhase
from pliant.appkit.performance.timing import site_of
from pliant.appkit.register_arrays import DataRegistration
from pliant.appkit.registered_objects import JobData
from pliant.appkit.registration import Registration
from pliant.appkit.resize.hooks import ResizeInfo, check_callable
from pliant.appkit.resize.rank_messages import pack_message, unpack_message
from pliant.appkit.resize.safe_point import SafePointMessage
from pliant.appkit.safe_point_runtime import Runtime
from pliant.appkit.serialization import decode, encode

#: Sent at a safe point in place of a message's length by a rank 0 that has left the loop.
_LEFT = -1

T = TypeVar("T")
#: A resize hook; its result is ignored.
Hook = Callable[[ResizeInfo], object]
HookT = TypeVar("HookT", bound=Hook)
OnOfferT = TypeVar("OnOfferT", bound=OnOffer)


def _name_as_written(*bases: type) -> None:
    """Make Python's error messages name inherited methods ``Job.METHOD``, as programs call them."""
    for base in bases:
        for name, method in vars(base).items():
            if isinstance(method, FunctionType) and not name.startswith("_"):
                method.__qualname__ = f"Job.{name}"


_name_as_written(Registration, DataRegistration)


class Job(DataRegistration):
    """The object that ``@malleable`` passes to ``main``: register data first, then run the loops.

    The methods that register data are in the base class `DataRegistration`.
    """

    def __init__(self, data: JobData, loops: Loops, runtime: Runtime) -> None:
        """Create the job; only ``@malleable`` does this, never a program."""
        super().__init__(data, loops)
        self._runtime = runtime
        # Length of the message that follows, broadcast at each safe point; usually 0. The buffer is
        # allocated once, because a safe point may come every few microseconds.
        self._flag = np.zeros(1, dtype=np.int64)
        self._spec = [self._flag, 1, MPI.INT64_T]

    # ---------------------------------------------------------------- this process

    @property
    def comm(self) -> MPI.Intracomm:
        """Return the job's communicator: a new object after every resize, so never keep it.

        Raises:
            NotJoined: before the first loop, except inside ``init=``, ``once`` and ``derive``; in a
                joining process, before its data have arrived.
            StaleHandle: ``main`` has ended.
            JobLeave: this process has left the job.
        """
        return self._member.communicator()

    @property
    def first(self) -> bool:
        """Return True on rank 0 of the running job, and False on all other and joining ranks.

        Use it for actions that must happen once, such as printing results or creating folders.
        """
        return not self.joining and self._member.rank == 0

    def thaw(self, array: Handle) -> None:
        """Let the program change an array with ``constant=True`` until the next safe point.

        Call it on all processes at the same place. Parts of the array that were read in advance
        for a resize are then not used.

        Args:
            array: a handle that was registered with ``constant=True``.

        Raises:
            DistributionError: the array is not registered as constant.
        """
        self._member.check()
        for constant in self._data.constants:
            if constant.handle is array:
                constant.thaw()
                return
        raise DistributionError(f"{array.label} is not registered with constant=True")

    # ---------------------------------------------------------------- communicators and results

    def derive(self, make: Derive) -> DerivedComm:
        """Register a function that makes a communicator from ``job.comm``, again after each resize.

        Call it on all processes with the same functions in the same order.

        Args:
            make: gets ``job.comm``, returns a communicator made from it; collective. Called at the
                start and after every resize; the previous communicator is freed.

        Returns:
            A handle, whose ``comm`` is the present communicator.

        Raises:
            LateRegistration: inside a loop.
            RegistrationError: ``make`` returned no communicator, or one that it did not make:
                ``job.comm``, ``MPI.COMM_WORLD``, ``MPI.COMM_SELF``, or the communicator of another
                ``derive``.
            TypeError: ``make`` cannot be called.
        """
        self._check_early("derive")
        check_callable("job.derive", make)
        derived = DerivedComm(self._member, make, self._data.derived)
        if not self.joining:
            with self._member.allow_communicator():
                derived.rebuild()
        self._data.derived.append(derived)
        return derived

    def once(self, function: Callable[[], T]) -> T:
        """Run a function at the first start only; joining ranks get its (picklable) result.

        Args:
            function: runs on every process of the first start and may use ``job.comm``. The result
                of the lowest rank that has not left is sent to joining ranks.

        Returns:
            The result of the function, or on a joining rank a copy of it.

        Raises:
            LateRegistration: inside a loop.
            PicklingError, TypeError, AttributeError: pickle cannot store the result. Raised only if
                the job can be resized.
        """
        self._check_early("once")
        if self.joining:
            data = self._runtime.stored_once_result()
            self._runtime.once_results.append(data)  # this process may be the coordinator one day
            received: T = decode(data)[0]
            return received
        with self._member.allow_communicator():
            result = function()
        if self._runtime.is_active:
            self._runtime.once_results.append(encode([result]))
        return result

    # ---------------------------------------------------------------- hooks

    def before_resize(self, hook: HookT) -> HookT:
        """Call ``hook(info)`` on all processes before each resize; collective. A decorator.

        Args:
            hook: gets a `ResizeInfo`; its ``leaving`` tells whether this process will leave.

        Returns:
            The hook, so that this can be used as a decorator, ``@job.before_resize``.

        Raises:
            TypeError: ``hook`` cannot be called.
        """
        check_callable("job.before_resize", hook)
        self._runtime.before_hooks.append(hook)
        return hook

    def after_resize(self, hook: HookT) -> HookT:
        """Call ``hook(info)`` after each resize on all processes that remain or joined; collective.

        Args:
            hook: gets a `ResizeInfo`; its ``committed`` tells whether the resize was carried out.
                When the job continues from a checkpoint, it is called with resize 0.

        Returns:
            The hook, so that this can be used as a decorator, ``@job.after_resize``.

        Raises:
            TypeError: ``hook`` cannot be called.
        """
        check_callable("job.after_resize", hook)
        self._runtime.after_hooks.append(hook)
        return hook

    def on_offer(self, hook: OnOfferT) -> OnOfferT:
        """Register ``hook(offer)``, which answers the server's offers of other sizes. A decorator.

        The hook is called on rank 0 in another thread: it must use neither MPI nor arrays.

        Args:
            hook: gets an `Offer`, and returns the answer. True accepts, False refuses, and None
                lets the library decide. A number of processes, several of them, or a text such as
                "2-8" names the totals that the program would accept; `OfferTerms` names other
                terms, too. If the hook raises or returns something else, the offer is refused for
                that reason.

        Returns:
            The hook, so that this can be used as a decorator, ``@job.on_offer``.

        Raises:
            TypeError: ``hook`` cannot be called.
        """
        check_callable("job.on_offer", hook)
        self._runtime.on_offer = hook
        return hook

    # ---------------------------------------------------------------- asking

    def request(
        self,
        sizes: int | str,
        why: str = "",
        deadline: float | None = None,
        prefer: int | None = None,
    ) -> Request:
        """Request another number of processors; returns at once, without communication.

        Call it on every process at the same place with the same arguments; those of rank 0 count.
        A later request replaces an earlier one. On a joining rank, the call requests nothing: once
        the rank has joined, the returned request is the latest request of the job.

        Args:
            sizes: the wanted total, or several totals as text such as "4-16" (the size grammar), of
                which the largest is wanted.
            why: text for people.
            deadline: seconds from now after which the request expires; None if it never does.
            prefer: the wanted total, if it is not the largest.

        Returns:
            The request, whose ``state`` changes at safe points.

        Raises:
            RequestError: none of the sizes is one of the program's, or another argument is wrong.
            SizesError: ``sizes`` is not in the size grammar.
        """
        return self._runtime.requests.request(sizes, why, deadline, prefer)

    def release(self, n: int = 1, *, to: int | None = None, why: str = "") -> Request:
        """Offer to give back ``n`` processors, or all but ``to``; works like `request`.

        Args:
            n: number of processors, 1 or more. If that does not lead to one of the program's sizes,
                the job releases more, down to its next smaller size.
            to: the total that the job keeps; if given, ``n`` is ignored.
            why: text for people.

        Returns:
            The request, whose ``state`` changes at safe points.

        Raises:
            RequestError: the program has no such size, or an argument is wrong.
        """
        return self._runtime.requests.release(n, to, why)

    @property
    def requested(self) -> Request | None:
        """Return the latest request of the job; None if there was none.

        A joining rank gets it, too, once it has joined.
        """
        return self._runtime.requests.latest

    # ---------------------------------------------------------------- safe points

    def steps(self, n: int, every: int = 1, save_every: int = 0) -> Iterator[int]:
        """Count from 0 to ``n - 1``, with a safe point before each ``every``-th step but the first.

        Joining ranks continue at the present iteration; finished loops yield nothing to them. All
        processes must do the same steps.

        Args:
            n: number of steps.
            every: steps between two safe points, 1 or more.
            save_every: steps between two automatic checkpoints, which are taken as by `save`; 0 for
                none.

        Raises:
            JobLeave: this process leaves.
            LoopError: inside another ``steps`` loop.
            TypeError: an argument is not a whole number.
            ValueError: ``every`` is not positive, or ``save_every`` is negative.
        """
        for name, value in {"n": n, "every": every, "save_every": save_every}.items():
            if not isinstance(value, int | np.integer):
                raise TypeError(f"job.steps: {name}={value!r} is no whole number")
        if every < 1:
            raise ValueError(f"job.steps: every={every} is not positive")
        if save_every < 0:
            raise ValueError(f"job.steps: save_every={save_every} is negative")
        return self._steps(n, every, save_every)

    def _steps(self, n: int, every: int, save_every: int) -> Iterator[int]:
        loops = self._loops
        self._check_left()
        number = loops.begin(n)
        self._runtime.performance.timer.start_loop(site_of(sys._getframe(1)))
        try:
            first = self._enter(number)
            if first is None:
                return
            loops.left = number
            for it in range(first, n):
                loops.iteration = it
                saves = save_every and it > first and it % save_every == 0
                if saves:
                    self.save()
                if saves or (it > first and it % every == 0):
                    self._safe_point()
                yield it
            loops.iteration = n
        finally:
            loops.end()
            self._runtime.leave_loop()

    def save(self) -> None:
        """Take a checkpoint at the next safe point; call it on all processes at the same place.

        When the job is started again, with any of its sizes, it continues from its last checkpoint.
        Without a folder for checkpoints, as in a program that runs alone, the call does nothing.
        The first checkpoint that fails is reported on stderr, and the job continues.
        """
        self._member.check()
        self._runtime.checkpoints.request()

    def safe_point(self) -> None:
        """Let the job be resized here, in a while-loop.

        Joining ranks enter the job at the first call in the loop that is running. They skip
        finished ``steps`` loops, but cannot skip a while-loop: it must be the last loop, and have
        only one such call.

        Raises:
            JobLeave: this process leaves.
            LoopError: inside a ``steps`` loop, or if a loop has several such calls; on a joining
                rank also if the job is in a later loop.
        """
        site = site_of(sys._getframe(1))
        self._check_left()
        if self._loops.at_site(site):
            self._runtime.performance.timer.start_loop(site)
            self._runtime.performance.timer.discard_interval()
            joins = self.joining
            if self._enter(self._loops.number) is None:
                raise LoopError(
                    "a joining rank came to a while-loop that the job has already left: write all "
                    "loops but the last with job.steps, which joining ranks skip"
                )
            if joins:
                return
        self._safe_point()

    def _check_left(self) -> None:
        """Check that all processes left the last ``steps`` loop at the same iteration; collective.

        If only some processes have left it, this method raises the error on them. The processes
        that are still in the loop raise it in `_broadcast`, at their next safe point.

        Raises:
            LoopError: a process has left the loop at another iteration, or not at all.
        """
        loops, member, raw = self._loops, self._member, self._member.raw
        if (
            not loops.left
            or loops.active
            or member.phase is not MembershipPhase.MEMBER
            or raw is None
        ):
            return
        loops.left = 0
        if member.size == 1:
            return
        with waiting_for_others(loops.iteration):
            if self._runtime.is_active:  # the others may be in the broadcast of a safe point
                self._flag[0] = _LEFT
                raw.Bcast(self._spec, 0)
                if self._flag[0] != _LEFT:
                    raise LoopError(left_alone_message("this process", loops.iteration))
            ends = np.array([loops.iteration, -loops.iteration], dtype=np.int64)
            raw.Allreduce(MPI.IN_PLACE, ends, op=MPI.MIN)
        if ends[0] != -ends[1]:
            raise LoopError(
                f"processes left a job.steps loop at different iterations ({ends[0]} to "
                f"{-ends[1]}, this one at {loops.iteration}): {REMEDY}"
            )

    def _enter(self, number: int) -> int | None:
        """Begin a loop on a running rank; on a joining rank, wait to join the job in it.

        Returns:
            The first iteration of the loop on this rank; None if a joining rank skips the loop.
        """
        if self.joining:
            position = self._runtime.join(number)
            if position is None:
                return None
            self._loops.iteration = position.iteration
            return position.iteration
        self._member.check()
        self._data.freeze()
        self._member.opened = True
        self._runtime.enter_loop(number)
        return 0

    def _safe_point(self) -> None:
        member, loops, runtime = self._member, self._loops, self._runtime
        member.check()
        self._data.freeze()
        loops.passed()
        runtime.performance.timer.end_interval(loops.iteration, member.size)
        if not runtime.is_active:
            return
        if runtime.awaited_check_resizes:
            runtime.wait_for_check_resize()
        message = runtime.next_message()
        if member.size > 1:
            message = self._broadcast(message)
        if message is not None:
            runtime.handle(message, Position(loops.number, loops.iteration))
        runtime.performance.timer.begin_interval(loops.iteration)

    def _broadcast(self, message: SafePointMessage | None) -> SafePointMessage | None:
        """Broadcast rank 0's message of this safe point, and return it on all ranks.

        Usually there is no message. The result is then None, and only one number is broadcast.

        Raises:
            LoopError: another process has left the loop.
        """
        raw = self._member.raw
        assert raw is not None
        text = pack_message(message) if message is not None else b""
        self._flag[0] = len(text)
        raw.Bcast(self._spec, 0)
        if not self._flag[0]:
            return None
        if self._flag[0] < 0:
            raise LoopError(left_alone_message("another process", self._loops.iteration))
        buffer = bytearray(text or int(self._flag[0]))
        raw.Bcast([buffer, MPI.BYTE], 0)
        return unpack_message(bytes(buffer))
