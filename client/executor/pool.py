"""The tasks of an executor, and its connections to workers.

A thread accepts connections, and each worker has a thread that sends it one task after the other.
`WorkerJobs`, in a further thread, reports which workers have ended and why. If one of the threads
fails, all futures fail, so that no future waits for ever.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from pliant.client.executor.executor_errors import (
    ExecutorBrokenError,
    RemoteTraceback,
    TaskResultError,
    WorkerLostError,
)
from pliant.client.executor.listener import Listener
from pliant.client.executor.wire import PicklingFailure, Wire
from pliant.client.executor.worker import ERROR
from pliant.core.support.base_error import PliantError

#: Connections that have not proved the secret yet, at most.
_MAX_STRANGERS = 128
#: Seconds before the next attempt after a connection could not be accepted.
_RETRY_S = 0.2


class Task:
    """A call to run in a worker, its future, and how many workers were lost while they ran it."""

    def __init__(self, call: tuple[Any, Sequence[Any], Mapping[str, Any]]) -> None:
        self.call = call
        self.future: Future[Any] = Future()
        self.losses = 0
        self.has_begun = False

    def begin(self) -> bool:
        """Record that a worker gets the task; return False if the task has been cancelled."""
        if not self.has_begun:
            self.has_begun = self.future.set_running_or_notify_cancel()
        return self.has_begun

    def fail(self, error: BaseException) -> None:
        """Set the exception of the future, unless the future was cancelled."""
        if self.begin():
            self.future.set_exception(error)


class Worker:
    """A worker process that is connected to the executor and runs its calls."""

    def __init__(self, name: str, node: str, wire: Wire) -> None:
        self.name, self.node, self.wire = name, node, wire
        #: The task that it runs.
        self.task: Task | None = None

    def has_left(self) -> bool:
        """Return whether the worker has closed its connection, without waiting."""
        poll = select.poll()
        try:
            poll.register(self.wire.fileno(), select.POLLRDHUP)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True


class Pool:
    """The tasks of an executor and its connected workers.

    All attributes are used with `lock` held.
    """

    def __init__(self, listener: Listener, retries: int) -> None:
        self.listener = listener
        self._retries = retries
        self.lock = threading.RLock()
        #: Notified if there is a task, and if workers or tasks have changed.
        self._more, self.changed = threading.Condition(self.lock), threading.Condition(self.lock)
        self._queue: deque[Task] = deque()
        #: Connected workers by the name of their job.
        self.workers: dict[str, Worker] = {}
        #: The names of all workers that have ever connected.
        self.seen: set[str] = set()
        #: Workers whose connection has ended, with the task that they ran, and when it ended.
        self.lost: list[tuple[Worker, float]] = []
        #: Whether no more tasks are accepted.
        self.is_closing = False
        self.broken: BaseException | None = None
        self._strangers = threading.BoundedSemaphore(_MAX_STRANGERS)
        for each in listener.sockets:
            self._start("executor-accept", self._accept, each)

    # ---------------------------------------------------------------- tasks

    def add(self, call: tuple[Any, Sequence[Any], Mapping[str, Any]]) -> Future[Any]:
        """Add a task; return its future."""
        task = Task(call)
        with self.lock:
            if self.broken is not None:
                raise ExecutorBrokenError(_describe(self.broken)) from self.broken
            if self.is_closing:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._queue.append(task)
            self._more.notify()
        return task.future

    def close(self, *, cancel: bool = False) -> None:
        """Accept no more tasks; with ``cancel``, also cancel the tasks that wait."""
        with self.lock:
            self.is_closing = True
            waiting = [task.future for task in self._queue if not task.has_begun]
            self._more.notify_all()
            self.changed.notify_all()
        if cancel:
            for future in waiting:
                future.cancel()

    def open_tasks(self) -> int:
        """Return how many tasks wait or run, after dropping cancelled ones from the queue."""
        while self._queue and self._queue[0].future.cancelled():
            self._queue.popleft().begin()
        running = sum(worker.task is not None for worker in self.workers.values())
        return len(self._queue) + running + sum(worker.task is not None for worker, _ in self.lost)

    def retry_or_fail(self, worker: Worker, reason: str) -> None:
        """Queue a lost worker's task again; after the last retry, fail the future of the task."""
        with self.lock:
            task, worker.task = worker.task, None
            if task is None:
                return
            task.losses += 1
            if task.losses <= self._retries:
                self._queue.appendleft(task)
                self._more.notify()
                return
        times = f", after {task.losses} attempts" if task.losses > 1 else ""
        text = f"job {worker.name} on node {worker.node} ended while it ran the task: {reason}"
        task.fail(WorkerLostError(f"{text}{times}"))

    def fail_all(self, error: BaseException) -> None:
        """Fail all tasks with ``error``, and accept no more."""
        with self.lock:
            if self.broken is None:
                self.broken = error
            text = _describe(self.broken)
            self.is_closing = True
            workers = [*self.workers.values(), *(worker for worker, _ in self.lost)]
            tasks = [*self._queue, *(each.task for each in workers if each.task is not None)]
            self._queue.clear()
            for worker in workers:
                worker.task = None
                worker.wire.interrupt()
            self._more.notify_all()
            self.changed.notify_all()
        for task in tasks:
            with contextlib.suppress(Exception):  # its worker has just set a result
                task.fail(ExecutorBrokenError(text))

    # ---------------------------------------------------------------- threads

    def _start(self, name: str, target: Callable[..., None], *args: Any) -> None:
        def guarded() -> None:
            try:
                target(*args)
            except BaseException as error:
                self.fail_all(error)

        threading.Thread(target=guarded, name=name, daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while not self._is_over():
            self._strangers.acquire()
            try:
                link, _ = listener.accept()
            except OSError:
                self._strangers.release()
                if listener.fileno() < 0:
                    return
                time.sleep(_RETRY_S)  # for example, too many files are open
                continue
            self._start("executor-worker", self._welcome, link)

    def _is_over(self) -> bool:
        with self.lock:
            return self.broken is not None

    def _welcome(self, link: socket.socket) -> None:
        try:
            wire = Wire(self.listener.admit(link))
        except OSError:
            return  # not a worker of this executor, or one that has ended already
        finally:
            self._strangers.release()
        try:
            hello = wire.receive_text()
            wire.send_text({"path": [os.path.abspath(each or ".") for each in sys.path]})
        except OSError:
            wire.close()
            return
        worker = Worker(str(hello.get("worker")), str(hello.get("node")), wire)
        with self.lock:
            self.workers[worker.name] = worker
            self.seen.add(worker.name)
            self.changed.notify_all()
        try:
            self._serve(worker)
        finally:
            with self.lock:
                if self.workers.get(worker.name) is worker:
                    del self.workers[worker.name]
                self.changed.notify_all()
            wire.close()

    def _serve(self, worker: Worker) -> None:
        while (task := self._next_task(worker)) is not None:
            try:
                worker.wire.send(task.call)
                outcome = worker.wire.receive()
            except PicklingFailure as failure:
                cause = failure.__cause__
                outcome = (ERROR, cause or TaskResultError(str(failure)), "")
            except OSError:
                break
            with self.lock:
                if worker.task is None:  # the pool is broken, and has failed the future
                    return
                worker.task = None
            _deliver(task, outcome)
            del task, outcome  # the thread now waits, and should not keep a large result
        else:
            with contextlib.suppress(OSError):
                worker.wire.send_exit()
            return
        with self.lock:
            self.lost.append((worker, time.monotonic()))

    def _next_task(self, worker: Worker) -> Task | None:
        """Wait for a task and return it.

        None if no more tasks will come, or the worker has disconnected.
        """
        with self.lock:
            while True:
                while self._queue:
                    if worker.has_left():
                        self._more.notify()  # another worker takes the task
                        return None
                    task = self._queue.popleft()
                    if task.begin():
                        worker.task = task
                        return task
                if self.is_closing or worker.has_left():
                    return None
                self._more.wait()


def _describe(error: BaseException) -> str:
    is_known = isinstance(error, PliantError)
    return str(error) if is_known else f"internal error {type(error).__name__}: {error}"


def _deliver(task: Task, outcome: tuple[str, Any, str]) -> None:
    kind, value, text = outcome
    if kind == ERROR:
        if text:
            value.__cause__ = RemoteTraceback(text)
        task.future.set_exception(value)
    else:
        task.future.set_result(value)
