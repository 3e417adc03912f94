"""Run a program for ``pliant check``: without resizes, and with resizes soon after its start."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence

from pliant.client.api import Client, Job
from pliant.client.client_errors import RequestError
from pliant.client.resize_check.compare import ProgramRun, failed_run

#: Variable that makes a program wait at its first safe points for this number of resizes.
RESIZES = "PLIANT_CHECK_RESIZES"
_POLL_S = 0.05
#: How often a program is resized.
_RESIZES = 3
_RUNS = {"RUNNING", "ADAPTING"}


class ProgramRunner:
    """Runs a program on the private cluster of a ``pliant check``."""

    def __init__(self, run: str, directory: str, timeout_s: float) -> None:
        """Prepare to run programs on a cluster.

        Args:
            run: the run folder of the cluster.
            directory: the folder for the outputs of the programs.
            timeout_s: seconds within which each step of a run must be done.
        """
        self._client = Client(run)
        self._directory, self._timeout_s = directory, timeout_s

    def undisturbed(self, words: Sequence[str], size: int) -> ProgramRun:
        """Run the program on a fixed number of processes, and return how that ended."""
        number, output = self._submit(words, str(size), f"size{size}", {})
        job = self._until(number, lambda job: job.final)
        return self._ended(job, output, f"undisturbed on {size} processes")

    def resized(self, words: Sequence[str], small: int, large: int) -> ProgramRun:
        """Run the program with resizes at its first safe points, and return how that ended.

        A job that starts at the small size grows, shrinks and grows again. So it ends with ranks
        that have joined, which may lack a value that the program uses only after the loop.
        """
        more = {RESIZES: str(_RESIZES)}
        sizes = f"{{{small},{large}}}"
        number, output = self._submit(words, sizes, "resized", more, prefer=small)
        job = self._until(number, lambda job: job.final or self._can_be_resized(job))
        first, refused = job.processors or small, ""
        targets = [large, small] if first == small else [small, large]
        for times in range(1, _RESIZES + 1):
            if not job.final and not refused:
                job, refused = self._resize(number, targets[(times - 1) % 2], times)
        if not refused:  # otherwise the program waits for resizes that will not come
            job = self._until(number, lambda job: job.final)
        path = [first, *self._sizes(number)]
        if not refused and len(path) <= _RESIZES and job.exit_code == 0:
            refused = (
                f"resizes: the program ended before it was resized {_RESIZES} times. Is it "
                f"malleable (@malleable), with the sizes {small} and {large}? Does its "
                "loop have more safe points?"
            )
        what = f"resized {' -> '.join(map(str, path))} processes"
        return self._ended(job, output, what, refused)

    def _resize(self, number: int, target: int, times: int) -> tuple[Job, str]:
        """Resize the job, wait for the outcome, and return the job with an error text.

        The text is empty if the resize succeeded or the job has ended.

        Args:
            number: the number of the job.
            target: the size to which it is resized.
            times: how many resizes the job has had in all when this one is done.
        """
        try:
            self._client.resize(number, target)
        except RequestError as error:
            job = self._client.job(number)
            return job, "" if job.final else f"resizes: not to {target} processes: {error}"

        def settled(job: Job) -> bool:
            return job.final or (job.state == "RUNNING" and len(self._sizes(number)) >= times)

        job = self._until(number, settled)
        if settled(job):
            return job, ""
        return job, f"resizes: not to {target} processes: {job.reason or 'no answer'}"

    def _sizes(self, number: int) -> list[int]:
        """Return the size of the job after each of its resizes."""
        events = self._client.history(number)
        return [int((event.data or {})["to"]) for event in events if event.kind == "job.resized"]

    def _can_be_resized(self, job: Job) -> bool:
        """Return whether a job runs and its program has registered with the server."""
        events = self._client.history(job.id) if job.state in _RUNS else []
        return any(event.kind == "application.registered" for event in events)

    def _submit(
        self,
        words: Sequence[str],
        sizes: str,
        name: str,
        more: dict[str, str],
        prefer: int | None = None,
    ) -> tuple[int, str]:
        output = os.path.join(self._directory, f"{name}.out")
        number = self._client.submit(
            sys.executable,
            *words,
            sizes=sizes,
            prefer=prefer,
            type="mpi",
            name=name,
            stdout=output,
            requeue=False,
            env={**os.environ, **more},
        )
        return number, output

    def _until(self, number: int, accept: Callable[[Job], bool]) -> Job:
        """Wait until ``accept(job)`` is true or the time limit is over; return the job then."""
        deadline = time.monotonic() + self._timeout_s
        while not accept(job := self._client.job(number)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return job

    def _ended(self, job: Job, output: str, what: str, refused: str = "") -> ProgramRun:
        """Return how a run of the program ended; cancel the job if it still runs.

        Args:
            job: the job as the server last reported it.
            output: path of its output file.
            what: a name for the run, for messages.
            refused: why the job could not be resized; empty if it could.
        """
        reason = job.reason
        if not job.final:
            self._client.cancel(job.id)
            late = f"it did not end within {self._timeout_s:g} s (--timeout)"
            reason = "ended by this check" if refused else late
        try:
            with open(output, encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            text = ""
        code = job.exit_code if job.final else None
        return ProgramRun(what, code, job.signal, text, reason, refused)


def run_all(
    runner: ProgramRunner, words: Sequence[str], small: int, large: int
) -> list[ProgramRun]:
    """Run the program without resizes at both sizes, then with resizes; stop at a failure.

    Returns:
        The runs that were done: fewer than three after a failure.
    """
    runs = [runner.undisturbed(words, small)]
    if not failed_run(runs[0]):
        runs.append(runner.undisturbed(words, large))
        if not failed_run(runs[1]):
            runs.append(runner.resized(words, small, large))
    return runs
