"""The handle that a malleable program works with."""

import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from pliant.appkit.catalogue import Catalogue
from pliant.appkit.coordinator.offers import OnOffer
from pliant.appkit.coordinator.requests import Request
from pliant.appkit.data.handle import Handle
from pliant.appkit.errors import DistributionError, LoopError
from pliant.appkit.kinds.job_data import JobData
from pliant.appkit.leaving_loops import REMEDY, left_alone, waiting_for_others
from pliant.appkit.loops import Loops, Position
from pliant.appkit.mpi.derived import Derive, DerivedComm
from pliant.appkit.mpi.membership import Phase
from pliant.appkit.performance.timing import site_of
from pliant.appkit.plain_data import decode, encode
from pliant.appkit.registration import Registration
from pliant.appkit.resize.hooks import ResizeInfo, check_callable
from pliant.appkit.resize.plain_messages import pack_message, unpack_message
from pliant.appkit.resize.safe_point import SafePointMessage
from pliant.appkit.runtime import Runtime

#: What rank 0 tells in the place of a decision's length: it has left the loop.
_LEFT = -1

T = TypeVar("T")
#: Gets what is known of a resize; what it returns is not looked at.
Hook = Callable[[ResizeInfo], object]
HookT = TypeVar("HookT", bound=Hook)
OnOfferT = TypeVar("OnOfferT", bound=OnOffer)


def _name_as_written(*bases: type) -> None:
    """Let Python's own errors name methods as programs do: ``Job.block()``, not its base class."""
    for base in bases:
        for name, method in vars(base).items():
            if isinstance(method, FunctionType) and not name.startswith("_"):
                method.__qualname__ = f"Job.{name}"


_name_as_written(Registration, Catalogue)


class Job(Catalogue):
    """What ``@malleable`` hands to ``main``. Register data, then loop; see the package's text.

    What may follow the job is in its base, the catalogue.
    """

    def __init__(self, data: JobData, loops: Loops, runtime: Runtime) -> None:
        """Wrap what decorator.py made; programs never make a job."""
        super().__init__(data, loops)
        self._runtime = runtime
        # The safe point's message: allocated once, because it is sent every few microseconds.
        self._flag = np.zeros(1, dtype=np.int64)  # bytes of a decision that follow
        self._spec = [self._flag, 1, MPI.INT64_T]

    # ---------------------------------------------------------------- where this process stands

    @property
    def comm(self) -> MPI.Intracomm:
        """The job's communicator: a new object after every resize, so never keep it.

        Raises:
            NotJoined: before the first safe point, except inside ``init=`` and ``once``.
            JobLeave: this process has left the job.
        """
        return self._member.communicator()

    @property
    def first(self) -> bool:
        """True on exactly one process of the running job, its rank 0; never on a newcomer.

        Guards one-time effects: headers, folders, the printing of results.
        """
        return not self.joining and self._member.rank == 0

    def thaw(self, array: Handle) -> None:
        """Let the program change an array that is ``constant``, until the next safe point.

        Call it on all processes alike. At the next resize it moves as if it were new.

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

    # ---------------------------------------------------------------- what else follows it

    def derive(self, make: Derive) -> DerivedComm:
        """Register a communicator made from ``job.comm``, made again after every resize.

        Call it on all processes with the same functions in the same order.

        Args:
            make: gets ``job.comm``, returns a communicator made from it; collective. Called at the
                start and after every resize; the communicator before is freed.

        Returns:
            A handle, whose ``comm`` is the present communicator.

        Raises:
            LateRegistration: inside a loop.
            RegistrationError: what ``make`` returned is no communicator, or one that it did not
                make: ``job.comm`` itself, one that MPI has, one that another ``make`` returned.
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
        """Run a function at the first start only; newcomers get its (picklable) result.

        Args:
            function: runs on every process of the first start and may use ``job.comm``. The result
                of the lowest rank that is still there is what newcomers get.

        Returns:
            What the function returned, or the copy of that which a newcomer gets.

        Raises:
            LateRegistration: inside a loop.
            PicklingError: the result cannot be pickled; or TypeError, AttributeError, as pickle has
                it. Only where the job can be resized.
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
        """Call ``hook(change)`` on all processes before a resize; collective. A decorator.

        Args:
            hook: gets a `ResizeInfo`, whose ``leaving`` tells whether this process will leave.

        Returns:
            The hook, so that this may stand above a function as ``@job.before_resize``.

        Raises:
            TypeError: it cannot be called.
        """
        check_callable("job.before_resize", hook)
        self._runtime.before_hooks.append(hook)
        return hook

    def after_resize(self, hook: HookT) -> HookT:
        """Call ``hook(change)`` on all that go on, newcomers included, after it; collective.

        Args:
            hook: gets a `ResizeInfo`, whose ``committed`` tells whether it was carried out. It is
                called with a change of resize 0 where the job goes on from a checkpoint.

        Returns:
            The hook, so that this may stand above a function as ``@job.after_resize``.

        Raises:
            TypeError: it cannot be called.
        """
        check_callable("job.after_resize", hook)
        self._runtime.after_hooks.append(hook)
        return hook

    def on_offer(self, hook: OnOfferT) -> OnOfferT:
        """Let ``hook(offer)`` answer offers, in another thread: no MPI, no arrays. A decorator.

        Args:
            hook: gets an `Offer`. True accepts, False refuses, None leaves it to the library;
                totals (a number, several, a text in the size grammar) or `OfferTerms` say what
                would do. If it raises, or returns something else, the offer is refused for that
                reason.

        Returns:
            The hook, so that this may stand above a function as ``@job.on_offer``.

        Raises:
            TypeError: it cannot be called.
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
        """Ask for another number of processors; returns at once, and sends no message to others.

        Call it on every process at the same place with the same arguments; what rank 0 says
        counts. A later request takes the place of an earlier one. A newcomer's call asks for
        nothing: once it has joined, what it got is the job's latest request.

        Args:
            sizes: the total wanted, or several in the size grammar, of which the largest is wanted.
            why: for people.
            deadline: seconds from now after which there is no use for it; None: it waits.
            prefer: the total that is wanted, if it is not the largest.

        Returns:
            The request, whose ``state`` changes at safe points.

        Raises:
            RequestError: none of the sizes is one of the program's, or another argument is wrong.
            SizesError: ``sizes`` is not in the size grammar.
        """
        return self._runtime.requests.request(sizes, why, deadline, prefer)

    def release(self, n: int = 1, *, to: int | None = None, why: str = "") -> Request:
        """Give ``n`` processors back, or all but ``to``; otherwise as `request`.

        Args:
            n: processors, 1 or more; where the program's sizes have gaps, it goes down to the next
                of them, and gives back more.
            to: the total that is to be left; ``n`` does not count then.
            why: for people.

        Returns:
            The request, whose ``state`` changes at safe points.

        Raises:
            RequestError: the program has no such size, or an argument is wrong.
        """
        return self._runtime.requests.release(n, to, why)

    @property
    def requested(self) -> Request | None:
        """The latest request, also on processes that came later; None: there was none."""
        return self._runtime.requests.latest

    # ---------------------------------------------------------------- safe points

    def steps(self, n: int, every: int = 1, save_every: int = 0) -> Iterator[int]:
        """Count from 0 to ``n - 1``, with a safe point before every ``every``-th but the first.

        Newcomers continue at the present iteration; loops that were over yield nothing to them.
        All processes must do the same steps.

        Args:
            n: steps in all.
            every: steps between two safe points, 1 or more.
            save_every: steps between two checkpoints, each as if `save` had been called; 0: the
                program takes none by itself.

        Raises:
            JobLeave: this process leaves.
            LoopError: inside another ``steps`` loop.
            TypeError: one of the three is no whole number.
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
        """Have a checkpoint taken at the next safe point; call it on every process alike.

        The job goes on from its last checkpoint when it is started again, on any of its sizes.
        Where there is no folder for checkpoints, as in a program that runs alone, it does nothing.
        If one cannot be taken, that is told on stderr once, and the job goes on.
        """
        self._member.check()
        self._runtime.checkpoints.request()

    def safe_point(self) -> None:
        """A place in a while-loop where the job may be resized.

        Newcomers enter the job at the first call of the loop that is running then. They skip
        ``steps`` loops that were over, but not such a loop: it is to be the last one, and has one
        such call.

        Raises:
            JobLeave: this process leaves.
            LoopError: inside a ``steps`` loop, or when the first of several calls in a loop comes
                again; on a newcomer also where the job is in a later loop.
        """
        site = site_of(sys._getframe(1))
        self._check_left()
        if self._loops.at_site(site):
            self._runtime.performance.timer.start_loop(site)
            self._runtime.performance.timer.discard_interval()
            joins = self.joining
            if self._enter(self._loops.number) is None:
                raise LoopError(
                    "a newcomer came to a while-loop that the job has left behind: write all loops "
                    "but the last with job.steps, which newcomers skip"
                )
            if joins:
                return
        self._safe_point()

    def _check_left(self) -> None:
        """Agree that all have left the last ``steps`` loop at the same iteration; collective.

        A ``break`` that only some processes take is noticed here on those that took it, and in
        `_spread` on the others.

        Raises:
            LoopError: some process has left it elsewhere, or not at all.
        """
        loops, member, raw = self._loops, self._member, self._member.raw
        if not loops.left or loops.active or member.phase is not Phase.MEMBER or raw is None:
            return
        loops.left = 0
        if member.size == 1:
            return
        with waiting_for_others(loops.iteration):
            if (
                self._runtime.is_active
            ):  # the others may be at a safe point, where rank 0 tells them
                self._flag[0] = _LEFT
                raw.Bcast(self._spec, 0)
                if self._flag[0] != _LEFT:
                    raise LoopError(left_alone("this process", loops.iteration))
            ends = np.array([loops.iteration, -loops.iteration], dtype=np.int64)
            raw.Allreduce(MPI.IN_PLACE, ends, op=MPI.MIN)
        if ends[0] != -ends[1]:
            raise LoopError(
                f"processes left a job.steps loop at different iterations ({ends[0]} to "
                f"{-ends[1]}, this one at {loops.iteration}): {REMEDY}"
            )

    def _enter(self, number: int) -> int | None:
        """Begin a loop; the iteration to begin with, None: newcomers skip this loop."""
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
            message = self._spread(message)
        if message is not None:
            runtime.handle(message, Position(loops.number, loops.iteration))
        runtime.performance.timer.begin_interval(loops.iteration)

    def _spread(self, message: SafePointMessage | None) -> SafePointMessage | None:
        """Tell all what rank 0 says. Nothing, as nearly always, costs one small Bcast."""
        raw = self._member.raw
        assert raw is not None
        text = pack_message(message) if message is not None else b""
        self._flag[0] = len(text)
        raw.Bcast(self._spec, 0)
        if not self._flag[0]:
            return None
        if self._flag[0] < 0:
            raise LoopError(left_alone("another process", self._loops.iteration))
        buffer = bytearray(text or int(self._flag[0]))
        raw.Bcast([buffer, MPI.BYTE], 0)
        return unpack_message(bytes(buffer))
