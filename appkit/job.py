"""The handle that a malleable program works with."""

import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

from pliant.appkit.agent import Agent
from pliant.appkit.arrays import BlockArray, Init
from pliant.appkit.decide import OnOffer
from pliant.appkit.derived import Derive, DerivedComm
from pliant.appkit.errors import LateRegistration, LoopError
from pliant.appkit.loops import Loops, Position
from pliant.appkit.membership import Phase
from pliant.appkit.messages import Decision
from pliant.appkit.replicated import ReplicatedArray
from pliant.appkit.resize import Belongings, Change
from pliant.appkit.state import State, StateEntry

T = TypeVar("T")
Hook = Callable[[Change], object]
HookT = TypeVar("HookT", bound=Hook)
OnOfferT = TypeVar("OnOfferT", bound=OnOffer)


class Job:
    """What ``@malleable`` hands to ``main``. Register data, then loop; see the package's text."""

    def __init__(self, belongings: Belongings, loops: Loops, agent: Agent) -> None:
        """Wrap what decorator.py made; programs never make a job."""
        self._all = belongings
        self._member = belongings.membership
        self._loops = loops
        self._agent = agent
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
    def joining(self) -> bool:
        """Whether this process is a newcomer whose data have not arrived."""
        if self._member.phase is Phase.LEFT:
            self._member.check()
        return self._member.phase is Phase.JOINING

    @property
    def first(self) -> bool:
        """True on exactly one process of the running job, its rank 0; never on a newcomer.

        Guards one-time effects: headers, folders, the printing of results.
        """
        return not self.joining and self._member.rank == 0

    # ---------------------------------------------------------------- what follows the job

    def block(
        self,
        name: str,
        shape: int | tuple[int, ...],
        *,
        axis: int = 0,
        halo: int = 0,
        dtype: DTypeLike = np.float64,
        init: Init | None = None,
    ) -> BlockArray:
        """Register an array in blocks along ``axis``.

        Args:
            name: unique in the job.
            shape: global, in cells.
            axis: the distributed one.
            halo: further cells on both sides of the axis.
            dtype: of a cell.
            init: gets the owned global ranges as a tuple of slices, returns that part; not called
                on newcomers. Without it: zeros.

        Raises:
            DuplicateName: the name is taken.
            LateRegistration: inside a loop.
            ValueError: shape, axis, halo or dtype make no sense.
        """
        array = BlockArray(self._member, name, _shape(shape), axis=axis, halo=halo, dtype=dtype)
        self._register(array)
        if not self.joining:
            with self._member.lend():
                array.start_with(init)
        return array

    def replicated(
        self,
        name: str,
        shape: int | tuple[int, ...],
        *,
        dtype: DTypeLike = np.float64,
        init: Callable[[], Any] | None = None,
    ) -> ReplicatedArray:
        """Register an array of which every process has a whole copy; newcomers are sent one.

        Raises:
            DuplicateName: the name is taken.
            LateRegistration: inside a loop.
        """
        array = ReplicatedArray(self._member, name, _shape(shape), dtype)
        self._register(array)
        if not self.joining:
            with self._member.lend():
                array.start_with(init)
        return array

    def state(self, **values: Any) -> State:
        """Register small picklable values, equal on all; at a resize those of rank 0 count.

        Raises:
            LateRegistration: inside a loop.
        """
        self._check_early("state")
        state = State(self._member, values)
        self._all.states.append(StateEntry(state))
        return state

    def derive(self, make: Derive) -> DerivedComm:
        """Register a communicator made from ``job.comm``, made again after every resize.

        Raises:
            LateRegistration: inside a loop.
        """
        self._check_early("derive")
        derived = DerivedComm(self._member, make)
        self._all.derived.append(derived)
        if not self.joining:
            with self._member.lend():
                derived.rebuild()
        return derived

    def once(self, function: Callable[[], T]) -> T:
        """Run a function at the first start only; newcomers get its (picklable) result.

        It runs on every process of the first start and may use ``job.comm``; the result of the
        lowest rank that is still there is what newcomers get.
        """
        self._check_early("once")
        if self.joining:
            data = self._agent.newcomer.once()
            self._agent.once.append(data)  # this process may be the coordinator one day
            received: T = pickle.loads(data)
            return received
        with self._member.lend():
            result = function()
        if self._agent.managed:
            self._agent.once.append(pickle.dumps(result, pickle.HIGHEST_PROTOCOL))
        return result

    # ---------------------------------------------------------------- hooks

    def before_resize(self, hook: HookT) -> HookT:
        """Call ``hook(change)`` on all processes before a resize; collective. A decorator."""
        self._agent.before.append(hook)
        return hook

    def after_resize(self, hook: HookT) -> HookT:
        """Call ``hook(change)`` on all that go on, newcomers included, after it; collective."""
        self._agent.after.append(hook)
        return hook

    def on_offer(self, hook: OnOfferT) -> OnOfferT:
        """Let ``hook(offer)`` answer offers, in another thread: no MPI, no arrays. A decorator."""
        self._agent.on_offer = hook
        return hook

    # ---------------------------------------------------------------- safe points

    def steps(self, n: int, every: int = 1) -> Iterator[int]:
        """Count from 0 to ``n - 1``, with a safe point before every ``every``-th but the first.

        Newcomers continue at the present iteration; loops that were over yield nothing to them.

        Raises:
            JobLeave: this process leaves.
            LoopError: inside another ``steps`` loop.
            ValueError: ``every`` is not positive.
        """
        if every < 1:
            raise ValueError(f"job.steps: every={every} is not positive")
        return self._steps(n, every)

    def _steps(self, n: int, every: int) -> Iterator[int]:
        loops = self._loops
        number = loops.begin(n)
        try:
            first = self._enter(number)
            if first is None:
                return
            for it in range(first, n):
                loops.iteration = it
                if it > first and it % every == 0:
                    self._safe_point()
                yield it
            loops.iteration = n
        finally:
            loops.end()
            self._agent.leave_loop()

    def safe_point(self) -> None:
        """A place in a while-loop where the job may be resized.

        Newcomers enter the job at the first call of the loop that is running then.

        Raises:
            JobLeave: this process leaves.
            LoopError: inside a ``steps`` loop.
        """
        caller = sys._getframe(1)
        if self._loops.at_site((caller.f_code, caller.f_lasti)):
            joins = self.joining
            if self._enter(self._loops.number) is None:
                raise LoopError("a newcomer came to a while-loop that the job has left behind")
            if joins:
                return
        self._safe_point()

    def _enter(self, number: int) -> int | None:
        """Begin a loop; the iteration to begin with, None: newcomers skip this loop."""
        if self.joining:
            position = self._agent.join(number)
            if position is None:
                return None
            self._loops.iteration = position.iteration
            return position.iteration
        self._member.check()
        self._member.opened = True
        self._agent.enter_loop(number)
        return 0

    def _safe_point(self) -> None:
        member, loops, agent = self._member, self._loops, self._agent
        member.check()
        loops.passed()
        if not agent.managed:
            return
        decision = agent.proposed() if agent.ready else None
        if member.size > 1:
            decision = self._spread(decision)
        if decision is not None:
            agent.adapt(decision, Position(loops.number, loops.iteration))

    def _spread(self, decision: Decision | None) -> Decision | None:
        """Tell all what rank 0 proposes. Nothing, as nearly always, costs one small Bcast."""
        raw = self._member.raw
        assert raw is not None
        text = pickle.dumps(decision) if decision is not None else b""
        self._flag[0] = len(text)
        raw.Bcast(self._spec, 0)
        if not self._flag[0]:
            return None
        buffer = bytearray(text or int(self._flag[0]))
        raw.Bcast([buffer, MPI.BYTE], 0)
        told: Decision = pickle.loads(buffer)
        return told

    # ---------------------------------------------------------------- internal

    def _register(self, array: BlockArray | ReplicatedArray) -> None:
        self._check_early(array.name)
        self._all.registry.add(array)

    def _check_early(self, what: str) -> None:
        if self._member.phase is not Phase.JOINING:
            self._member.check()
        if self._loops.active:
            raise LateRegistration(f"{what!r} is registered inside a loop: newcomers would miss it")


def _shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    lengths = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    return tuple(int(length) for length in lengths)
