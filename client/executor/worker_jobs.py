"""The jobs of the workers: submitted as arrays, watched, replaced and cancelled.

One thread does all this with one client. A restart of the server does not disturb the workers that
are connected; the thread continues when the server is back.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pliant.client.api import Client, Job
from pliant.client.client_errors import ClientError, NoServerError, RequestError
from pliant.client.executor.executor_errors import ExecutorBrokenError
from pliant.client.executor.pool import Pool
from pliant.client.executor.worker import VARIABLE

if TYPE_CHECKING:
    from pliant.client.api.submit_options import SubmitOptions

#: Seconds between two looks at the jobs, and between two looks at everything else.
_POLL_S, _TICK_S = 3.0, 0.5
#: Seconds for a lost worker's job to end, so that its reason is known; then it is cancelled.
_GRACE_S = 10.0
#: Workers that may end before they connect until the executor is broken, if none is connected.
_MAX_FAILED_STARTS = 3
#: The longest pause, seconds, before the next start after workers have ended before they connected.
_MAX_PAUSE_S = 60.0
#: Seconds without a server and without workers until the executor is broken.
_ABSENCE_S = 300.0
#: Seconds to wait at the end until all jobs have ended.
_END_S = 30.0


class WorkerJobs:
    """Keeps the wanted number of worker jobs until the pool is closed and has no tasks."""

    def __init__(
        self, client: Client, pool: Pool, workers: int, processors: int, options: SubmitOptions
    ) -> None:
        """Submit the worker jobs, and start the thread that watches and replaces them.

        Args:
            client: the connection to the server.
            pool: the tasks that the workers run.
            workers: the number of jobs.
            processors: the processors of each job.
            options: further options of the jobs.

        Raises:
            ClientError: the jobs cannot be submitted.
        """
        self._client, self._pool, self._count = client, pool, workers
        kind: SubmitOptions = {"type": "uni"} if processors == 1 else {"type": "script"}
        environment = {**(options.get("env") or os.environ)}
        environment[VARIABLE] = json.dumps(pool.listener.contact._asdict())
        defaults: SubmitOptions = {
            "name": "executor",
            "stdout": "pliant-executor-%A.out",
            "open_mode": "append",
            # Threads of a task may use all processors of its worker.
            "bind": "node" if processors > 1 else "rank",
        }
        self._options: SubmitOptions = {**defaults, **options, **kind, "env": environment}
        # A worker that is lost is replaced by another job, which may run on another node.
        self._options["requeue"] = False
        self._processors = processors
        #: Arrays whose tasks have not all ended, and the names of workers that have not ended.
        self._arrays: set[int] = set()
        self._names: set[str] = set()
        #: Why the jobs of workers that had connected have ended.
        self._reasons: dict[str, str] = {}
        #: Workers that ended before they connected, since the last one connected.
        self._failed_starts = 0
        self._connected, self._submit_at = 0, 0.0
        self._server_left: float | None = None
        self._submit(workers)
        # Not a daemon: the interpreter waits until open tasks are done and no job is left.
        self.thread = threading.Thread(target=self._run, name="executor-jobs")
        self.thread.start()

    def _submit(self, count: int) -> None:
        self._options["array"] = f"1-{count}"
        number = self._client.submit(
            sys.executable,
            *("-m", "pliant.client.executor.worker"),
            sizes=self._processors,
            **self._options,
        )
        self._arrays.add(number)
        self._names |= {f"{number}_{task}" for task in range(1, count + 1)}

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            self._watch()
        except BaseException as error:
            self._pool.fail_all(error)
            self._pool.listener.close()
        finally:
            # A worker that starts only now connects, and is told that there are no more tasks.
            with contextlib.suppress(ClientError):  # workers without an executor exit
                self._end_jobs()
            self._pool.listener.close()
            self._client.close()

    def _watch(self) -> None:
        next_poll = 0.0
        while True:
            if not threading.main_thread().is_alive():
                self._pool.close()  # the interpreter exits, and nobody has called `shutdown`
            with self._pool.lock:
                if self._pool.is_closing and not self._pool.open_tasks():
                    return
                has_lost = bool(self._pool.lost)
            now = time.monotonic()
            if now >= next_poll or has_lost:
                self._poll(now)
                next_poll = now + _POLL_S
            with self._pool.lock:
                self._pool.changed.wait(_TICK_S if not has_lost else _TICK_S / 5)

    def _poll(self, now: float) -> None:
        """Compare the connected workers with their jobs once, and submit missing jobs."""
        try:
            jobs = self._jobs()
            self._server_left = None
        except NoServerError as error:
            jobs = None
            self._note_absence(now, error)
        self._retry_or_fail_lost(jobs, now)
        if jobs is None:
            return
        self._drop_ended(jobs, now)
        with self._pool.lock:
            wanted = self._count
            if self._pool.is_closing:
                wanted = min(wanted, self._pool.open_tasks())
        if wanted > len(self._names) and now >= self._submit_at:
            with contextlib.suppress(NoServerError):  # the next poll tries again
                self._submit(wanted - len(self._names))

    def _jobs(self) -> dict[str, Job]:
        """Return, by name, the job arrays of the workers and their tasks that have started."""
        if not self._arrays:
            return {}
        jobs = self._client.jobs(sorted(self._arrays))
        return {_name(job): job for job in jobs}

    def _note_absence(self, now: float, error: NoServerError) -> None:
        self._server_left = now if self._server_left is None else self._server_left
        with self._pool.lock:
            is_alone = not self._pool.workers
        if is_alone and now - self._server_left > _ABSENCE_S:
            raise error

    def _retry_or_fail_lost(self, jobs: Mapping[str, Job] | None, now: float) -> None:
        """Repeat or fail the task of each lost worker, with the reason why its job ended.

        If the job of a worker has not ended `_GRACE_S` seconds after the loss, it is cancelled.
        ``jobs`` are the jobs by name; None if the server does not answer.
        """
        with self._pool.lock:
            lost = [*self._pool.lost]
        for entry in lost:
            worker, since = entry
            ended = self._reasons.get(worker.name)
            if ended is None and jobs is not None:
                ended = self._end_of(worker.name, jobs)
            if ended is None and now - since < _GRACE_S:
                continue
            if ended is None:
                with contextlib.suppress(ClientError):
                    self._client.cancel(worker.name)
            self._pool.retry_or_fail(worker, ended or "the connection to it was lost")
            with self._pool.lock:
                self._pool.lost.remove(entry)

    def _drop_ended(self, jobs: Mapping[str, Job], now: float) -> None:
        """Forget workers whose jobs have ended.

        Raises:
            ExecutorBrokenError: all worker jobs were cancelled, or worker jobs ended repeatedly
                before they connected.
        """
        for name in sorted(self._names):
            if (reason := self._end_of(name, jobs)) is None:
                continue
            self._names.discard(name)
            with self._pool.lock:
                worker = self._pool.workers.get(name)
                is_alone, connected = not self._pool.workers, len(self._pool.seen)
            if connected > self._connected:
                self._connected, self._failed_starts = connected, 0
            if name in self._pool.seen:
                self._reasons[name] = reason  # its thread may not know yet that it was lost
            if worker is not None:
                worker.wire.interrupt()  # its host is gone, and the kernel does not know it yet
            job = jobs.get(name)
            if job is not None and job.state == "CANCELLED":
                self._count -= 1  # somebody wants fewer workers
                if not self._count:
                    raise ExecutorBrokenError(f"its worker jobs were cancelled: {reason}")
            elif name not in self._pool.seen:
                self._failed_starts += 1
                self._submit_at = now + min(2.0**self._failed_starts, _MAX_PAUSE_S)
                if is_alone and self._failed_starts >= _MAX_FAILED_STARTS:
                    where = f" on node {', '.join(job.nodes)}" if job and job.nodes else ""
                    output = f"; see {job.stdout} there" if job and job.stdout else ""
                    raise ExecutorBrokenError(
                        f"no worker starts: job {name}{where} ended before it connected to the "
                        f"executor: {reason}{output}"
                    )
        arrays = {int(name.partition("_")[0]) for name in self._names}
        self._remove_empty_outputs(jobs, self._arrays - arrays)
        self._arrays = arrays

    def _end_of(self, name: str, jobs: Mapping[str, Job]) -> str | None:
        """Return why the job of a worker has ended, or None if it has not."""
        job = jobs.get(name)
        array = jobs.get(name.partition("_")[0])
        if job is None and array is None:
            return "the server does not know the job any more"
        found = job or array
        if found is None or not found.final:
            return None
        signal = f"signal {found.signal}" if found.signal else ""
        code = f"exit code {found.exit_code}" if found.exit_code else ""
        return ", ".join(filter(None, (found.state, found.reason, signal or code)))

    # ---------------------------------------------------------------- the end

    def _end_jobs(self) -> None:
        """Cancel workers that have not connected, and wait until all have ended."""
        deadline = time.monotonic() + _END_S
        with contextlib.suppress(RequestError):  # some have ended meanwhile
            if waiting := sorted(self._names - self._pool.seen):
                self._client.cancel(*waiting)
        with self._pool.lock:
            while self._pool.workers and time.monotonic() < deadline:
                self._pool.changed.wait(_TICK_S)
        for number in sorted(self._arrays):
            left = max(deadline - time.monotonic(), 0.1)
            with contextlib.suppress(TimeoutError):
                self._client.wait(number, timeout_s=left)
        self._remove_empty_outputs(self._jobs(), self._arrays)

    def _remove_empty_outputs(self, jobs: Mapping[str, Job], arrays: set[int]) -> None:
        """Remove the output files of these arrays that are empty and can be found on this host."""
        files = {job.stdout for job in jobs.values() if job.array_job in arrays and job.stdout}
        for file in files:
            with contextlib.suppress(OSError):
                if os.path.isfile(file) and not os.path.getsize(file):
                    os.unlink(file)


def _name(job: Job) -> str:
    return str(job.id) if job.array_job is None else f"{job.array_job}_{job.array_task}"
