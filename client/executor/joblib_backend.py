"""A backend of joblib that runs its calls in a `PliantExecutor`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from joblib.parallel import AutoBatchingMixin, ParallelBackendBase


class PliantBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Run the calls of ``joblib.Parallel`` in an executor; short calls are sent in batches.

    The executor continues after a ``Parallel``, and serves further ones.
    """

    supports_retrieve_callback = True

    def __init__(self, executor: Executor, workers: int) -> None:
        super().__init__(nesting_level=0)
        self._executor, self._count = executor, workers
        self._futures: set[Future[Any]] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls run at the same time: at most the number of workers.

        None stands for 1, and -1 for all workers, -2 for all but one, and so on.

        Raises:
            ValueError: ``n_jobs`` is 0.
        """
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        return min(n_jobs, self._count) if n_jobs > 0 else max(self._count + 1 + n_jobs, 1)

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[Any]], Any] | None = None
    ) -> Future[Any]:
        """Run a batch of calls in the executor, and return its future.

        ``callback`` is called with this future when the batch is done.
        """
        future = self._executor.submit(func)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the results of the batch of calls whose future is ``out``."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the batches that have not begun; joblib calls this when a call has failed."""
        for future in list(self._futures):
            future.cancel()
