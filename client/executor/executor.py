"""`PliantExecutor`, the interface of users."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pliant.client.api import Client
from pliant.client.api import argument_checks as checks
from pliant.client.client_errors import UsageError
from pliant.client.executor.listener import Listener
from pliant.client.executor.pool import Pool
from pliant.client.executor.worker_jobs import WorkerJobs
from pliant.client.submission.build_job import build_job

if TYPE_CHECKING:
    from typing import Unpack

    from joblib.parallel import ParallelBackendBase

    from pliant.client.api.submit_options import SubmitOptions

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

#: Options of ``submit`` that the executor itself chooses.
_OWN = ("array", "components", "dependency", "hold", "requeue", "script", "type")


class PliantExecutor(Executor):
    """Run calls on the processors of a cluster, with the interface of ``concurrent.futures``.

    ::

        with PliantExecutor(workers=4) as executor:
            future = executor.submit(pow, 2, 10)
            print(future.result(), list(executor.map(abs, [-1, 2])))

    Each worker is a job with one process, which runs one call at a time. Functions, arguments and
    results are pickled with cloudpickle, so functions may be lambdas. Needs the extra ``executor``:
    ``pip install pliant[executor]``.
    """

    def __init__(
        self,
        workers: int = 1,
        *,
        processors_per_worker: int = 1,
        retries: int = 1,
        address: str | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        **options: Unpack[SubmitOptions],
    ) -> None:
        """Submit the workers; calls can be submitted at once, and wait for the first worker.

        Args:
            workers: the number of workers. They start as processors become free.
            processors_per_worker: processors of each worker, for calls that use threads or start
                processes.
            retries: the number of further tries of a call whose worker ended while it ran the call.
            address: the address of this host on which to listen for workers, such as
                ``"10.0.0.1"`` or ``"10.0.0.1:7010"``. By default a unix socket, and if the cluster
                has other hosts also the addresses of this host that face them.
            run_dir: the cluster, as for `Client`.
            options: options of the jobs, as for `Client.submit`, such as ``time_limit_s``,
                ``nodelist``, ``mem_per_cpu``, ``env`` and ``stdout``.

        Raises:
            UsageError: an argument is wrong, or cloudpickle is not installed.
            NoServerError: there is no server.
            RequestError: the server refuses the jobs.
            TypeError: there is no such option.
        """
        #: Dask reads the number of workers from this name.
        self._max_workers = checks.check_whole("workers", workers, 1, "4")
        processors = checks.check_whole("processors_per_worker", processors_per_worker, 1, "1")
        checks.check_whole("retries", retries, 0, "1")
        _check(options)
        client = Client(run_dir)
        try:
            listener = Listener((node.address for node in client.nodes()), address)
            pool = Pool(listener, retries)
            try:
                jobs = WorkerJobs(client, pool, workers, processors, options)
            except BaseException as error:
                pool.fail_all(error)
                listener.close()
                raise
        except BaseException:
            client.close()
            raise
        self._pool, self._thread = pool, jobs.thread
        # An executor that nobody uses any more ends when its calls are done.
        weakref.finalize(self, pool.close).atexit = False

    @property
    def workers(self) -> dict[str, str]:
        """Return the node of each connected worker, by the name of the worker's job."""
        with self._pool.lock:
            return {worker.name: worker.node for worker in self._pool.workers.values()}

    def submit(
        self,
        fn: Callable[Arguments, Result],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Future[Result]:
        """Run ``fn(*args, **kwargs)`` in a worker; return its future.

        A future can be cancelled until a worker begins the call. If the call raises an exception,
        the ``__cause__`` of the exception is its traceback in the worker.

        Raises:
            RuntimeError: after `shutdown`.
            ExecutorBrokenError: no worker can run it.
        """
        return self._pool.add((fn, args, kwargs))

    def map(  # type: ignore[override,unused-ignore]
        self,
        fn: Callable[..., Result],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Result]:
        """Return the results of ``fn`` for the items of ``iterables``, in their order.

        Args:
            fn: the function; it gets an item of each iterable.
            iterables: read at once, until the shortest ends.
            timeout: seconds from now until the last result has to be there, or None.
            chunksize: calls that a worker does at once. More than 1 saves time if calls are short.

        Raises:
            TimeoutError: a result was not there in time; raised by the iterator.
            ValueError: ``chunksize`` is below 1.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout)
        calls = zip(*iterables, strict=False)
        chunks = iter(lambda: list(itertools.islice(calls, chunksize)), [])
        results = super().map(partial(_call_each, fn), chunks, timeout=timeout)
        return _flatten(results)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls, and end the workers when all calls are done.

        Args:
            wait: whether to return only when all calls are done and all jobs have ended.
            cancel_futures: whether to cancel the calls that have not begun.
        """
        self._pool.close(cancel=cancel_futures)
        if wait:
            self._thread.join()

    def joblib_backend(self) -> ParallelBackendBase:
        """Return a backend for ``joblib.parallel_config(backend=..., n_jobs=-1)``.

        Raises:
            UsageError: joblib is not installed.
        """
        try:
            from pliant.client.executor.joblib_backend import PliantBackend
        except ModuleNotFoundError as error:
            if error.name != "joblib":
                raise
            raise UsageError("joblib is not installed; run `pip install joblib`") from None
        return PliantBackend(self, self._max_workers)


def _check(options: SubmitOptions) -> None:
    """Check that a user may give these options, and that calls can be pickled.

    Raises:
        UsageError: the executor itself chooses one of the options, an option has a wrong type, or
            cloudpickle is not installed.
        TypeError: there is no such option.
    """
    if chosen := sorted(set(options) & {*_OWN, "sizes"}):
        raise UsageError(
            f"{chosen[0]}: the executor chooses this option itself; its arguments are workers and "
            "processors_per_worker"
        )
    checks.submit_options(options, build_job.__kwdefaults__ or {})
    try:
        import cloudpickle  # noqa: F401
    except ModuleNotFoundError:
        raise UsageError(
            "PliantExecutor needs cloudpickle; run `pip install pliant[executor]`"
        ) from None


def _call_each(fn: Callable[..., Result], calls: list[tuple[Any, ...]]) -> list[Result]:
    return [fn(*args) for args in calls]


def _flatten(chunks: Iterator[list[Result]]) -> Iterator[Result]:
    # Closing this iterator closes `chunks`, which then cancels the calls that have not begun.
    try:
        for chunk in chunks:
            chunk.reverse()
            while chunk:
                yield chunk.pop()
    finally:
        chunks.close()  # type: ignore[attr-defined]
