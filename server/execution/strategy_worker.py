"""The child process for a strategy that is not part of Pliant.

It reads views (snapshots of jobs and nodes) and writes plans. It also answers whether a job could
be accepted.

The command is ``python -m pliant.server.execution.strategy_worker NAME OPTIONS``, with the options
as JSON. The process ends at the end of its input, even while the strategy works, because a server
that has ended needs no plan. Output of the strategy goes to standard error, which is the log of the
server.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from typing import BinaryIO

import msgspec

from pliant.core.model.views_and_plans import Availability, Outcome, Plan, View, WaitingJob
from pliant.strategies import OptionError, Strategy, UnknownStrategyError, load_strategy

#: Every message starts with its length in this many bytes, most significant first.
LENGTH_BYTES = 8
_PR_SET_PDEATHSIG = 1

#: A view with the outcomes of negotiations (a plan is wanted), or with a job (availability).
Question = tuple[View, tuple[Outcome, ...] | WaitingJob]


def frame(message: object) -> bytes:
    """Encode a message for the pipe: its length, then its content."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(LENGTH_BYTES) + data


def main() -> int:
    """Load the strategy, then plan until the input ends.

    Returns:
        The exit status: 1 if the strategy could not be loaded, which was reported to the server.
    """
    _end_with_the_server()
    requests, answers = _take_pipes()
    name, options = sys.argv[1], json.loads(sys.argv[2])
    try:
        strategy = load_strategy(name, options)
    except UnknownStrategyError as error:
        return _say(answers, "refused", "strategy", str(error)) or 1
    except OptionError as error:
        return _say(answers, "refused", "strategy_options", str(error)) or 1
    except Exception as error:  # others' code may raise anything
        traceback.print_exc()
        text = f"strategy {name!r} cannot be made: {type(error).__name__}: {error}"
        return _say(answers, "refused", "strategy", text) or 1
    _say(answers, "ready")
    questions: queue.SimpleQueue[Question] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, questions), daemon=True).start()
    while True:
        _say(answers, *_answer(strategy, *questions.get()))


def _end_with_the_server() -> None:
    """Ask the kernel to kill this process when the server's thread that started it ends."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move the pipes to other descriptors; return the files for requests and for answers.

    Afterwards, the standard input of the strategy is empty, and its standard output goes to the
    log.
    """
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # it may be killed at any time
    return requests, answers


def _say(answers: BinaryIO, *message: object) -> int:
    answers.write(frame(message))
    answers.flush()
    return 0


def _read(requests: BinaryIO, questions: queue.SimpleQueue[Question]) -> None:
    """Put the server's questions into a queue; end this process when the server closes the pipe."""
    while True:
        head = requests.read(LENGTH_BYTES)
        data = requests.read(int.from_bytes(head))
        if len(head) < LENGTH_BYTES or len(data) < int.from_bytes(head):
            os._exit(0)
        # Safe: it comes from the server, which started this process.
        questions.put(pickle.loads(data))


def _answer(
    strategy: Strategy, view: View, what: tuple[Outcome, ...] | WaitingJob
) -> tuple[object, ...]:
    """Pass a question of the server to the strategy, and return the answer as a message.

    Args:
        strategy: the strategy.
        view: the state to plan for.
        what: a job, to ask whether it would be accepted; or the outcomes of negotiations, to ask
            for a plan.

    Returns:
        The kind ``plan``, ``availability`` or ``fault``, then the data. The data of a fault is the
        reason as text.
    """
    try:
        if isinstance(what, WaitingJob):
            found: object = strategy.is_available(what, view)
            if not isinstance(found, Availability):
                return "fault", f"returned {type(found).__name__}, no Availability"
            return "availability", msgspec.to_builtins(found)
        plan: object = strategy.plan(view, what)
        if not isinstance(plan, Plan):
            return "fault", f"returned {type(plan).__name__}, no Plan"
        json.dumps(plan.memory)  # raises if the server could not store it
        # As plain data: the server must not unpickle objects of foreign classes.
        return "plan", msgspec.to_builtins(plan)
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        return "fault", f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
