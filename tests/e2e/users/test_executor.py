"""`PliantExecutor` on a real cluster, next to the executors of the standard library."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from operator import add
from pathlib import Path
from typing import Any

import pytest

from clusterkit.cluster import Cluster
from clusterkit.shared import running_cluster
from pliant.client import ExecutorBrokenError, PliantExecutor, WorkerLostError
from testkit import run_python, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

#: No future may take longer, however loaded the machine is.
LONG_S = 100.0


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[Cluster]:
    with running_cluster("fcfs", nodes=2) as cluster:
        yield cluster


def make(cluster: Cluster, tmp_path: Path, **options: Any) -> PliantExecutor:
    options = {"workers": 2, "run_dir": cluster.run, "chdir": tmp_path, **options}
    return PliantExecutor(**options)


@pytest.fixture(name="new", params=["threads", "jobs"])
def _new(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path
) -> Callable[[], Executor]:
    if request.param == "threads":
        return lambda: ThreadPoolExecutor(2)
    return lambda: make(cluster, tmp_path)


@contextmanager
def both_busy(executor: Executor, gate: Path) -> Iterator[list[Future[None]]]:
    """Keep both workers of an executor busy, and begin when both calls run."""

    def hold(path: str) -> None:
        while not os.path.exists(path):
            time.sleep(0.02)

    futures = [executor.submit(hold, str(gate)) for _ in range(2)]
    try:
        wait_until(lambda: all(each.running() for each in futures), what="two calls to run")
        yield futures
    finally:
        gate.touch()


class TestAsTheStandardLibrary:
    def test_results_errors_and_order(self, new: Callable[[], Executor]) -> None:
        with new() as executor:
            assert executor.submit(pow, 2, 10, mod=1000).result(LONG_S) == 24
            offset = 7
            assert executor.submit(lambda x: x + offset, 1).result(LONG_S) == 8
            assert list(executor.map(add, range(50), range(50, 0, -1))) == [50] * 50
            assert list(executor.map(add, range(50), range(50), chunksize=8)) == [*range(0, 100, 2)]
            failing = executor.submit(int, "x")
            error = failing.exception(LONG_S)
            assert isinstance(error, ValueError)
            assert "'x'" in str(error)
            results = executor.map(int, ["1", "x", "3"], timeout=LONG_S)
            assert next(results) == 1
            with pytest.raises(ValueError, match="'x'"):
                next(results)
            futures = {executor.submit(abs, -x): x for x in range(5)}
            assert {each.result(): x for each, x in futures.items()} == {x: x for x in range(5)}
            assert set(as_completed(futures, timeout=LONG_S)) == set(futures)
            exits = executor.submit(sys.exit, 3).exception(LONG_S)
            assert isinstance(exits, SystemExit)

    def test_a_waiting_call_can_be_cancelled_and_a_running_one_cannot(
        self, new: Callable[[], Executor], tmp_path: Path
    ) -> None:
        with new() as executor:
            with both_busy(executor, tmp_path / "gate") as running:
                waiting = executor.submit((tmp_path / "ran").touch)
                with pytest.raises(TimeoutError):
                    list(executor.map(abs, [1], timeout=0.01))
                assert waiting.cancel()
                assert not running[0].cancel()
            assert [each.result(LONG_S) for each in running] == [None, None]
            assert waiting.cancelled()
        assert not (tmp_path / "ran").exists()

    def test_the_end_completes_or_cancels_what_waits(
        self, new: Callable[[], Executor], tmp_path: Path
    ) -> None:
        executor = new()
        with both_busy(executor, tmp_path / "gate"):
            kept = executor.submit(abs, -1)
            executor.shutdown(wait=False)
            with pytest.raises(RuntimeError, match="after shutdown"):
                executor.submit(abs, 1)
        assert kept.result(LONG_S) == 1
        executor.shutdown()
        executor = new()
        with both_busy(executor, tmp_path / "gate-2") as running:
            dropped = executor.submit(abs, -1)
            executor.shutdown(wait=False, cancel_futures=True)
            assert dropped.cancelled()
        executor.shutdown()
        assert all(each.done() for each in running)


def test_the_cause_of_an_exception_is_its_remote_traceback_and_no_job_is_left(
    cluster: Cluster, tmp_path: Path
) -> None:
    with make(cluster, tmp_path) as executor:
        # A function of a module: cloudpickle may hide the source of a lambda.
        error = executor.submit(json.loads, "x").exception(LONG_S)
        (job, node), *_ = executor.workers.items()
        assert isinstance(error, ValueError)
        assert f"in job {job.partition('_')[0]}_" in str(error.__cause__)
        assert 'raise JSONDecodeError("Expecting value"' in str(error.__cause__)
        assert node in {"n1", "n2"}
        unusable: BaseException | None = executor.submit(lambda: (x for x in "ab")).exception(
            LONG_S
        )
        assert "the result cannot be pickled" in str(unusable)
        unusable = executor.submit(list, (x for x in "ab")).exception(LONG_S)
        assert isinstance(unusable, TypeError)
        assert executor.submit(lambda: len(os.environ.get("PLIANT_EXECUTOR", ""))).result() == 0
    assert cluster.client.jobs() == []
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {}


def killing(marks: Path, times: int) -> Callable[[], int]:
    """Return a function that kills its process in the first calls, and returns their number."""
    marks.mkdir()

    def kill_worker() -> int:
        call = len(os.listdir(marks))
        Path(marks, f"{call}").touch()
        if call < times:
            os.kill(os.getpid(), signal.SIGKILL)
        return call

    return kill_worker


def test_the_call_of_a_dead_worker_is_run_again_as_often_as_asked_for(
    cluster: Cluster, tmp_path: Path
) -> None:
    with make(cluster, tmp_path, retries=1) as executor:
        assert executor.submit(killing(tmp_path / "once", 1)).result(LONG_S) == 1
        error = executor.submit(killing(tmp_path / "always", 9)).exception(LONG_S)
        assert isinstance(error, WorkerLostError)
        for part in ("job ", " on node n", "signal 9", "after 2 attempts"):
            assert part in str(error)
        assert len(list((tmp_path / "always").iterdir())) == 2
        assert executor.submit(abs, -1).result(LONG_S) == 1


def test_a_killed_server_disturbs_no_call_and_lost_workers_are_replaced_afterwards(
    cluster: Cluster, tmp_path: Path
) -> None:
    with make(cluster, tmp_path, workers=1) as executor:
        assert executor.submit(abs, -1).result(LONG_S) == 1
        cluster.kill("server")
        assert list(executor.map(abs, range(20))) == [*range(20)]
        lost = executor.submit(killing(tmp_path / "marks", 1))
        cluster.up()
        assert lost.result(LONG_S) == 1


def test_cancelled_workers_are_not_replaced(cluster: Cluster, tmp_path: Path) -> None:
    with make(cluster, tmp_path) as executor:
        with both_busy(executor, tmp_path / "gate") as running:
            cluster.client.cancel(*executor.workers)
            errors = [each.exception(LONG_S) for each in running]
        assert all(isinstance(each, ExecutorBrokenError | WorkerLostError) for each in errors)
        with pytest.raises(ExecutorBrokenError, match="cancelled"):
            executor.submit(abs, 1)


def test_workers_that_cannot_start_break_the_executor(cluster: Cluster, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONHOME": "/nonexistent"}
    with make(cluster, tmp_path, env=environment) as executor:
        error = executor.submit(abs, 1).exception(LONG_S)
        assert isinstance(error, ExecutorBrokenError)
        for part in ("no worker starts", " on node n", "exit code 1", "pliant-executor-"):
            assert part in str(error)


def test_an_interpreter_that_exits_or_is_killed_leaves_no_jobs(
    cluster: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys\n"
        "from pliant.client import PliantExecutor\n"
        f"executor = PliantExecutor(workers=5, run_dir={str(cluster.run)!r})\n"
        "print(executor.submit(abs, -4).result(), flush=True)\n"
        "if sys.argv[1:]:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "last = executor.submit(print, 'the last call')\n"
    )
    # The folder of its socket stays behind if it is killed.
    temporary = {"TMPDIR": str(tmp_path)}
    done = run_python(str(script), cwd=tmp_path, env=temporary, timeout=LONG_S)
    assert done.stdout == "4\n"
    assert cluster.client.jobs() == []
    assert any("the last call" in each.read_text() for each in tmp_path.glob("pliant-*.out"))
    run_python(str(script), "killed", cwd=tmp_path, env=temporary, timeout=LONG_S, check=False)
    wait_until(lambda: not cluster.client.jobs(), timeout=LONG_S, what="all workers to end")


def test_dask_and_joblib_use_it(cluster: Cluster, tmp_path: Path) -> None:
    import dask
    import joblib

    with make(cluster, tmp_path) as executor:
        total = dask.delayed(sum)([dask.delayed(pow)(x, 2) for x in range(10)])
        assert dask.compute(total, scheduler=executor) == (285,)
        with dask.config.set(scheduler=executor):
            assert total.compute() == 285
        with joblib.parallel_config(backend=executor.joblib_backend(), n_jobs=-1):
            squares = joblib.Parallel()(joblib.delayed(pow)(x, 2) for x in range(40))
            assert squares == [x * x for x in range(40)]
            with pytest.raises(ValueError, match="'x'"):
                joblib.Parallel()(joblib.delayed(int)(each) for each in "12x")


def test_workers_connect_over_tls_to_an_address(cluster: Cluster, tmp_path: Path) -> None:
    with make(cluster, tmp_path, workers=1, address="127.0.0.1", processors_per_worker=2) as (
        executor
    ):
        large = b"x" * 3_000_000
        assert executor.submit(len, large).result(LONG_S) == len(large)
        assert executor.submit(lambda: os.environ["PLIANT_PROCESSORS"].count(",")).result() == 1
