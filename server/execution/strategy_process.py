"""A strategy in a process of its own: asked with a deadline, ended when it does not keep it.

The child is ended and started anew after whatever it does wrong, so that the next plan begins
afresh. Its answers are read as plain data (numbers, texts, lists) and then checked.
"""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from pliant.core.model.scheduling import Availability, Outcome, Plan, View, WaitingJob
from pliant.server.execution.strategy_worker import LENGTH_BYTES, Question, frame

log = logging.getLogger(__name__)

T = TypeVar("T", Plan, Availability)

#: A strategy may take this long to be loaded when the server is told of it.
LOAD_TIMEOUT_S = 30.0
#: A larger answer is no plan.
MAX_ANSWER_BYTES = 1 << 26
#: Seconds to wait for a child that was killed or has closed its pipes. A process takes long to
#: end on a busy machine; one that takes longer is collected later.
_COLLECT_S = 2.0
_CHUNK = 1 << 16


class StrategyFaultError(Exception):
    """There is no plan, and the child was ended; the message says why."""


class StrategyRefusedError(Exception):
    """There is no such strategy, or it has no such option.

    Attributes:
        key: the setting that is wrong, ``strategy`` or ``strategy_options``.
    """

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


class StrategyProcess:
    """One strategy and its child, which is started at once.

    The child ends with the thread that started it: call from threads that live as long as the
    server.

    Args:
        name: of the strategy.
        options: of the strategy.
    """

    def __init__(self, name: str, options: Mapping[str, object]) -> None:
        self._command = [
            *(sys.executable, "-m", "pliant.server.execution.strategy_worker"),
            *(name, json.dumps(dict(options))),
        ]
        self._received = b""
        self._ready = False
        self._child = self._start()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    # ---------------------------------------------------------------- asking

    def check(self, within_s: float = LOAD_TIMEOUT_S) -> None:
        """Wait until the strategy is loaded.

        Raises:
            StrategyRefusedError: it cannot be.
            StrategyFaultError: the child did not come so far.
        """
        self._guarded(self._await_ready, within_s)

    def plan(self, view: View, within_s: float, outcomes: Sequence[Outcome] = ()) -> Plan:
        """Ask for a plan; with ``outcomes`` of talks the last one is to be revised.

        Raises:
            StrategyFaultError: there is none within ``within_s`` seconds, or it is no plan.
        """
        return self._convert(Plan, self._answer("plan", (view, tuple(outcomes)), within_s))

    def availability(self, job: WaitingJob, view: View, within_s: float) -> Availability:
        """Ask whether a job could be accepted.

        Raises:
            StrategyFaultError: no answer came within ``within_s`` seconds, or it makes no sense.
        """
        return self._convert(Availability, self._answer("availability", (view, job), within_s))

    def _answer(self, kind: str, question: Question, within_s: float) -> object:
        """Return the data of an answer of this kind."""
        try:
            answer = self._guarded(lambda deadline: self._ask(question, deadline), within_s)
        except StrategyRefusedError as error:
            self.restart()
            raise StrategyFaultError(str(error)) from None
        match answer:
            case (str() as found, data) if found == kind:
                return data
            case ("fault", str() as text):
                why = text
            case _:
                why = f"answered with something that is no {kind}"
        self.restart()
        raise StrategyFaultError(why)

    def close(self) -> None:
        """End the child, and what it started."""
        child = self._child
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended, and so did all it started
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        try:
            child.wait(_COLLECT_S)
        except subprocess.TimeoutExpired:
            log.warning("process %d of a strategy does not end yet", child.pid)

    def restart(self) -> None:
        """End the child and start another one."""
        self.close()
        self._received, self._ready = b"", False
        self._child = self._start()

    # ---------------------------------------------------------------- one exchange

    def _guarded(self, exchange: Callable[[float], Any], within_s: float) -> Any:
        """Do it before the deadline; whatever goes wrong, the next child is a new one."""
        try:
            return exchange(time.monotonic() + within_s)
        except StrategyRefusedError:
            raise
        except _DeadlinePassedError:
            why = f"no answer within {within_s:g} s"
        except _PipeClosedError:
            why = f"its process {self._how_it_ended()}"
        except Exception as error:  # bytes that are no message
            why = f"answered with something that is no message ({type(error).__name__})"
        self.restart()
        raise StrategyFaultError(why)

    def _ask(self, question: Question, deadline: float) -> Any:
        self._send(frame(question), deadline)
        if not self._ready:
            self._await_ready(deadline)
        return self._receive(deadline)

    def _await_ready(self, deadline: float) -> None:
        match self._receive(deadline):
            case ("ready",):
                self._ready = True
            case ("refused", str() as key, str() as text):
                raise StrategyRefusedError(key, text)
            case _:
                raise ValueError("not ready, not refused")

    def _convert(self, kind: type[T], data: object) -> T:
        try:
            made = msgspec.convert(data, kind)
            if isinstance(made, Plan):
                json.dumps(made.memory)
        except Exception as error:
            self.restart()
            raise StrategyFaultError(
                f"its {kind.__name__.lower()} makes no sense: {error}"
            ) from None
        return made

    # ---------------------------------------------------------------- bytes

    def _send(self, data: bytes, deadline: float) -> None:
        pipe = _number(self._child.stdin)
        left = memoryview(data)
        while left:
            _wait(pipe, select.POLLOUT, deadline)
            try:
                left = left[os.write(pipe, left[:_CHUNK]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise _PipeClosedError from None

    def _receive(self, deadline: float) -> Any:
        """The next message, made of plain data only."""
        length = int.from_bytes(self._take(LENGTH_BYTES, deadline))
        if length > MAX_ANSWER_BYTES:
            raise ValueError("too long")
        return _PlainDataUnpickler(io.BytesIO(self._take(length, deadline))).load()

    def _take(self, number: int, deadline: float) -> bytes:
        pipe = _number(self._child.stdout)
        parts, held = [self._received], len(self._received)
        while held < number:
            _wait(pipe, select.POLLIN, deadline)
            try:
                part = os.read(pipe, _CHUNK)
            except BlockingIOError:
                continue
            if not part:
                raise _PipeClosedError
            parts.append(part)
            held += len(part)
        whole = b"".join(parts)
        self._received = whole[number:]
        return whole[:number]

    # ---------------------------------------------------------------- the child

    def _start(self) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C is not meant for it, and what it starts ends with it.
        child = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        os.set_blocking(_number(child.stdin), False)
        os.set_blocking(_number(child.stdout), False)
        return child

    def _how_it_ended(self) -> str:
        try:
            code = self._child.wait(_COLLECT_S)
        except subprocess.TimeoutExpired:
            return "closed its pipes"
        return f"ended with signal {-code}" if code < 0 else f"ended with exit code {code}"


class _DeadlinePassedError(Exception):
    """The deadline has passed."""


class _PipeClosedError(Exception):
    """The other end of a pipe is closed."""


class _PlainDataUnpickler(pickle.Unpickler):
    """Reads numbers, texts and containers; no object of any class."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse.

        Raises:
            pickle.UnpicklingError: always.
        """
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")


def _wait(pipe: int, what: int, deadline: float) -> None:
    """Sleep until a pipe can be used; raise _TooLateError at the deadline."""
    poll = select.poll()
    poll.register(pipe, what)
    left = deadline - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise _DeadlinePassedError


def _number(pipe: Any) -> int:
    assert pipe is not None
    number: int = pipe.fileno()
    return number
