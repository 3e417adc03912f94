"""The program of a worker: ``python -m pliant.client.executor.worker``, started as a job.

It runs one task after the other in its main thread. If the executor ends, however that happens, the
worker exits at once, also in the middle of a task.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from pliant.client.executor.executor_errors import TaskResultError
from pliant.client.executor.listener import Contact, connect
from pliant.client.executor.wire import ExitRequested, PicklingFailure, Wire

#: The variable with the `Contact`.
VARIABLE = "PLIANT_EXECUTOR"

#: Kinds of outcomes of a task.
RESULT, ERROR = "result", "error"


def main() -> int:
    """Run tasks until the executor tells this worker to exit; return the exit code."""
    text = os.environ.pop(VARIABLE, "")
    if not text:
        print("pliant executor worker: only PliantExecutor starts this program", file=sys.stderr)
        return 2
    try:
        wire = Wire(connect(Contact(**json.loads(text))))
        wire.send_text({"worker": worker_name(os.environ), "node": _node()})
        _extend_path(wire.receive_text()["path"])
    except OSError as error:
        print(f"pliant executor worker: cannot reach the executor: {error}", file=sys.stderr)
        return 1
    threading.Thread(target=_exit_with_executor, args=(wire.fileno(),), daemon=True).start()
    try:
        while True:
            _run_next(wire)
    except ExitRequested:
        return 0
    except OSError:
        return 1


def worker_name(environment: Mapping[str, str]) -> str:
    """Return the name of the job of a worker, such as ``17_3``."""
    array, task = environment.get("PLIANT_ARRAY_JOB"), environment.get("PLIANT_ARRAY_TASK")
    return f"{array}_{task}" if array and task else environment.get("PLIANT_JOB", "")


def _node() -> str:
    return os.environ.get("PLIANT_NODE", "")


def _run_next(wire: Wire) -> None:
    try:
        function, args, kwargs = wire.receive()
    except PicklingFailure as error:
        outcome = _error(
            TaskResultError(f"the worker cannot load the task: {error}; is its module installed?")
        )
    else:
        outcome = _run(function, args, kwargs)
        # A next task may need the memory.
        del function, args, kwargs
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    try:
        wire.send(outcome)
    except PicklingFailure as error:
        wire.send(_error(TaskResultError(f"the result cannot be pickled: {error}")))


def _run(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[str, Any, str]:
    try:
        return RESULT, function(*args, **kwargs), ""
    except BaseException as error:  # also SystemExit: the future gets it, as in concurrent.futures
        return _error(error)


def _error(error: BaseException) -> tuple[str, Any, str]:
    """Return the message for a task that raised an exception: kind, exception and traceback.

    An exception that cannot be pickled is replaced by a `TaskResultError`.
    """
    import cloudpickle

    where = f"in job {worker_name(os.environ)} on node {_node()}:\n"
    text = where + "".join(traceback.format_exception(error))
    try:
        # Exceptions are often pickled well and then cannot be loaded.
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception as fault:
        error = TaskResultError(
            f"the task raised {type(error).__name__}: {error} (which cannot be pickled: {fault})"
        )
    # Its frames would keep the arguments of the task in memory.
    return ERROR, error.with_traceback(None), text


def _extend_path(path: list[str]) -> None:
    """Append those folders of ``path``, the executor's ``sys.path``, that this worker's lacks."""
    sys.path.extend(each for each in path if each not in sys.path)


def _exit_with_executor(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    while not poll.poll():
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
