"""Evolving jobs: phases with different demands, and what a job does when a phase begins.

A job with fewer processors than the phase's maximum asks for more. A job with more gives the
surplus back. A job with fewer than the phase's minimum stands still while its request is open. If
the request is refused or expires, the job continues with what it has, and asks again in the next
phase only.

A request stays open until the phase would end at the job's present size. If the job stands still,
the request stays open for as long as the phase would take on its minimum. The source (Ghafoor
3.1.1) says which side asks, but not for how long. Without a limit, jobs that stand still could wait
for each other's processors for ever.
"""

from collections.abc import Callable, Iterable, MutableMapping
from itertools import accumulate

from pliant.core.commands import AnswerRequest
from pliant.core.events import Event, RequestCancelled, SizesRequested
from pliant.core.model.size_request import RequestOutcome
from pliant.core.values.ids import JobId
from pliant.core.values.sizes import Sizes
from pliant.simulator.inputs.workload import Phase, SimJob
from pliant.simulator.run.job_run import Run

#: The metric that counts each kind of answer.
COUNTED = {
    RequestOutcome.GRANTED: "requests_granted",
    RequestOutcome.PARTLY: "requests_partly",
    RequestOutcome.REFUSED: "requests_refused",
    RequestOutcome.CANCELLED: "requests_cancelled",
    RequestOutcome.EXPIRED: "requests_expired",
}


class EvolvingRun(Run):
    """A run of an evolving job, whose phases demand different numbers of processors."""

    __slots__ = ("_later", "asked", "open", "place", "request")

    def __init__(
        self, job: SimJob, number: int, ranks: tuple[int, ...], now: float, cost: float
    ) -> None:
        super().__init__(job, number, ranks, now, cost)
        works = [phase.work for phase in job.phases]
        #: The work that is left after each phase, in seconds on one processor.
        self._later = [*list(accumulate(reversed(works)))[-2::-1], 0.0]
        #: The index of the present phase.
        self.place = 0
        #: The number of requests so far, and the number of the open one; 0 if none is open.
        self.asked = self.request = 0
        #: The requests without an answer, and whether each gives processors back.
        self.open: dict[int, bool] = {}

    @property
    def phase(self) -> Phase:
        """Return the present phase: the part of the program that runs now, with its own demand."""
        return self.job.phases[self.place]

    @property
    def phase_end(self) -> float | None:
        """Return the simulated time, in seconds, at which the present phase ends.

        None in the last phase, and while the job stands still or saves a checkpoint.
        """
        if self.stalled or self.saving or self.place == len(self._later) - 1:
            return None
        return self.time_of(self.work_left - self._later[self.place])

    def resume_from(self, earlier: Run, restart_s: float) -> None:
        """Continue in the phase that the earlier run had reached, after ``restart_s`` seconds."""
        super().resume_from(earlier, restart_s)
        if isinstance(earlier, EvolvingRun):
            self.place, self.asked = earlier.place, earlier.asked

    def next_phase(self, now: float) -> None:
        """Begin the next phase, because the work of the present one is done."""
        self._account(now)
        # The job may have computed more than that while negotiations took time.
        self.work_left = min(self.work_left, self._later[self.place])
        self.place += 1
        self._project(now)

    def set_stalled(self, still: bool, now: float) -> None:
        """Stop computing for lack of processors if ``still`` is set, otherwise continue."""
        if still != self.stalled:
            self._account(now)
            self.stalled = still
            self._project(now)


class Phases:
    """Makes the requests of evolving jobs when phases begin, and applies the answers.

    A phase is a part of the program with its own smallest and largest number of processors.

    Args:
        schedule: called when a run's phase ends at another time than before.
        counts: the counters of the metrics.
    """

    def __init__(
        self, schedule: Callable[[EvolvingRun], None], counts: MutableMapping[str, int]
    ) -> None:
        self._schedule = schedule
        self._counts = counts

    def begin(self, run: EvolvingRun, now: float) -> Iterable[Event]:
        """Begin a phase, and return the events with the job's requests.

        A phase is a part of the program with its own demand. The job requests more processors if it
        has fewer than the maximum of the phase. It requests to give some back if it has more.
        """
        phase, size = run.phase, len(run.ranks)
        if size == phase.maximum:
            run.set_stalled(False, now)
            self._schedule(run)
            return self._take_back(run)
        run.asked += 1
        run.request, gives = run.asked, size > phase.maximum
        run.open[run.asked] = gives
        self._counts["releases" if gives else "requests"] += 1
        run.set_stalled(size < phase.minimum, now)
        self._schedule(run)
        sizes = Sizes(range(phase.minimum, phase.maximum + 1))
        reason = f"phase {run.place + 1} of {len(run.job.phases)}"
        job = JobId(run.job.id)
        until = None if gives else self._until(run, now)
        return (SizesRequested(job, run.number, run.asked, sizes, reason, until),)

    def end_phase(self, run: EvolvingRun, version: int, now: float) -> Iterable[Event]:
        """Begin the next phase, and return the events with the job's requests.

        If the run has ended or its ``version``, which counts its changes, is another one by now, do
        nothing and return no events.
        """
        if run.ended or run.version != version:
            return ()
        run.next_phase(now)
        return self.begin(run, now)

    def take_answer(self, run: EvolvingRun, answer: AnswerRequest, now: float) -> None:
        """Apply the core's answer to a request of a job.

        A job that stood still to wait for the answer continues to compute.
        """
        gives = run.open.pop(answer.number, None)
        if gives is False:
            self._counts[COUNTED[answer.outcome]] += 1
        if run.request == answer.number:
            run.request = 0
            if run.stalled:
                run.set_stalled(False, now)
                self._schedule(run)

    def adjust_to_size(self, run: EvolvingRun, now: float) -> None:
        """Continue after a resize, if the job now has enough processors for its phase.

        A phase is a part of the program. The job stands still while it has fewer processors than
        the minimum of its phase.
        """
        if len(run.ranks) >= run.phase.minimum:
            run.set_stalled(False, now)
        self._schedule(run)

    def cancel_requests(self, run: EvolvingRun) -> None:
        """Cancel all open requests, because the run has ended."""
        asked = sum(not gives for gives in run.open.values())
        run.open.clear()
        self._counts[COUNTED[RequestOutcome.CANCELLED]] += asked

    def _take_back(self, run: EvolvingRun) -> Iterable[Event]:
        number, run.request = run.request, 0
        if not number:
            return ()
        return (RequestCancelled(JobId(run.job.id), run.number, number),)

    @staticmethod
    def _until(run: EvolvingRun, now: float) -> float:
        if run.stalled:
            return now + run.phase.work / run.job.speedup(run.phase.minimum)
        return run.end if run.phase_end is None else run.phase_end


def bounded(run: Run, offered: int, agreed: int) -> int:
    """Return ``agreed``, limited to the size that an evolving job's present phase can use.

    Args:
        run: the run of the job; for a job without phases the size is not limited.
        offered: the size that the server offers, which tells growth from shrinking.
        agreed: the size to which the job would agree.
    """
    if not isinstance(run, EvolvingRun):
        return agreed
    now, phase = len(run.ranks), run.phase
    sizes = run.job.sizes
    if offered < now:
        least = phase.minimum if phase.minimum in sizes else sizes.smallest_above(phase.minimum)
        return max(agreed, min(now, least or now))
    return max(now, min(agreed, sizes.largest_at_most(phase.maximum)))
