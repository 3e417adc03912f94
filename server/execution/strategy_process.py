"""A strategy in a child process, which is killed if its answer comes after the deadline.

After any fault the child is killed and restarted, so that the next plan starts from a clean state.
Its answers are read as plain data (numbers, texts, lists) and then checked.
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

from pliant.core.model.views_and_plans import Availability, Outcome, Plan, View, WaitingJob
from pliant.core.support.input_limits import MAX_ARGUMENT_BYTES
from pliant.server.execution.strategy_worker import LENGTH_BYTES, Question, frame

log = logging.getLogger(__name__)

T = TypeVar("T", Plan, Availability)

#: A strategy may take this long to load when its name is checked, seconds.
LOAD_TIMEOUT_S = 30.0
#: A larger answer is a fault.
MAX_ANSWER_BYTES = 1 << 26
#: Seconds to wait for a child that was killed or has closed its pipes. A process takes long to
#: end on a busy machine; one that takes longer is collected later.
_COLLECT_S = 2.0
_CHUNK = 1 << 16


class StrategyProcessError(Exception):
    """The strategy gave no usable answer and was restarted. The message is the reason."""


class StrategyRefusedError(Exception):
    """No strategy has this name, or the strategy has no such option.

    Attributes:
        key: the setting that is wrong, ``strategy`` or ``strategy_options``.
    """

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


class StrategyProcess:
    """A strategy and its child process, which is started at once.

    The kernel kills the child when the thread that started it ends. So use it only in threads that
    live as long as the server.

    Args:
        name: the name of the strategy.
        options: the options of the strategy.

    Raises:
        StrategyRefusedError: the name or the options are too long for a command line.
    """

    def __init__(self, name: str, options: Mapping[str, object]) -> None:
        text = json.dumps(dict(options))
        for key, argument in (("strategy", name), ("strategy_options", text)):
            if (size := len(os.fsencode(argument))) > MAX_ARGUMENT_BYTES:
                raise StrategyRefusedError(key, f"{size} bytes, the limit is {MAX_ARGUMENT_BYTES}")
        self._command = [
            *(sys.executable, "-P", "-m", "pliant.server.execution.strategy_worker"),
            *(name, text),
        ]
        self._received = b""
        self._ready = False
        self._child = self._start()

    @property
    def pid(self) -> int:
        """Return the process id of the strategy's process."""
        return self._child.pid

    # ---------------------------------------------------------------- asking

    def check(self, within_s: float = LOAD_TIMEOUT_S) -> None:
        """Wait until the child has loaded the strategy.

        Raises:
            StrategyRefusedError: its name or an option is wrong.
            StrategyProcessError: the child ended or was too slow.
        """
        self._with_deadline(self._await_ready, within_s)

    def plan(self, view: View, within_s: float, outcomes: Sequence[Outcome] = ()) -> Plan:
        """Return the strategy's plan for a view.

        Args:
            view: the state to plan for.
            within_s: the deadline in seconds.
            outcomes: the outcomes of negotiations; if there are any, the last plan is revised.

        Raises:
            StrategyProcessError: if no answer came before the deadline, or it is not a plan.
        """
        return self._convert(Plan, self._answer("plan", (view, tuple(outcomes)), within_s))

    def availability(self, job: WaitingJob, view: View, within_s: float) -> Availability:
        """Return whether the strategy would accept a job now, and when it would start.

        Raises:
            StrategyProcessError: if no answer came within ``within_s`` seconds, or it is invalid.
        """
        return self._convert(Availability, self._answer("availability", (view, job), within_s))

    def _answer(self, kind: str, question: Question, within_s: float) -> object:
        """Send a question to the child, and return the data of its answer.

        Raises:
            StrategyProcessError: there is no answer, or it is not of the kind ``kind``. The child
                is then restarted.
        """
        try:
            answer = self._with_deadline(lambda deadline: self._ask(question, deadline), within_s)
        except StrategyRefusedError as error:
            self.restart()
            raise StrategyProcessError(str(error)) from None
        match answer:
            case (str() as found, data) if found == kind:
                return data
            case ("fault", str() as text):
                why = text
            case _:
                why = f"answered with something that is no {kind}"
        self.restart()
        raise StrategyProcessError(why)

    def close(self) -> None:
        """Kill the child and all processes that it started."""
        child = self._child
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended, and so have all processes that it started
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        try:
            child.wait(_COLLECT_S)
        except subprocess.TimeoutExpired:
            log.warning("process %d of a strategy does not end yet", child.pid)

    def restart(self) -> None:
        """Kill the child and start another one."""
        self.close()
        self._received, self._ready = b"", False
        self._child = self._start()

    # ---------------------------------------------------------------- one exchange

    def _with_deadline(self, exchange: Callable[[float], Any], within_s: float) -> Any:
        """Exchange messages with the child within a time; restart the child if this fails.

        Args:
            exchange: is called with the deadline (on the monotonic clock); its result is returned.
            within_s: the seconds from now until the deadline.

        Raises:
            StrategyRefusedError: as ``exchange`` raised it; the child is not restarted.
            StrategyProcessError: the child gave no answer before the deadline, or has ended.
        """
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
        raise StrategyProcessError(why)

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
            raise StrategyProcessError(
                f"its {kind.__name__.lower()} makes no sense: {error}"
            ) from None
        return made

    # ---------------------------------------------------------------- bytes

    def _send(self, data: bytes, deadline: float) -> None:
        pipe = _descriptor(self._child.stdin)
        left = memoryview(data)
        while left:
            _wait_for_pipe(pipe, select.POLLOUT, deadline)
            try:
                left = left[os.write(pipe, left[:_CHUNK]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise _PipeClosedError from None

    def _receive(self, deadline: float) -> Any:
        """Return the child's next message, which may contain plain data only."""
        length = int.from_bytes(self._read_bytes(LENGTH_BYTES, deadline))
        if length > MAX_ANSWER_BYTES:
            raise ValueError("too long")
        return _PlainDataUnpickler(io.BytesIO(self._read_bytes(length, deadline))).load()

    def _read_bytes(self, number: int, deadline: float) -> bytes:
        pipe = _descriptor(self._child.stdout)
        parts, held = [self._received], len(self._received)
        while held < number:
            _wait_for_pipe(pipe, select.POLLIN, deadline)
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
        # In a session of its own, so that Ctrl-C does not reach it, and so that the processes that
        # it starts can be killed with it.
        child = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        os.set_blocking(_descriptor(child.stdin), False)
        os.set_blocking(_descriptor(child.stdout), False)
        return child

    def _how_it_ended(self) -> str:
        try:
            code = self._child.wait(_COLLECT_S)
        except subprocess.TimeoutExpired:
            return "closed its pipes"
        return f"ended with signal {-code}" if code < 0 else f"ended with exit code {code}"


class _DeadlinePassedError(Exception):
    """The child has not answered before its deadline."""


class _PipeClosedError(Exception):
    """The child has closed its end of a pipe, because it has ended."""


class _PlainDataUnpickler(pickle.Unpickler):
    """Unpickles numbers, texts and containers from the child, and refuses objects of any class."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every class.

        Raises:
            pickle.UnpicklingError: always.
        """
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")


def _wait_for_pipe(pipe: int, what: int, deadline: float) -> None:
    """Wait until a pipe is ready; raise _DeadlinePassedError at the deadline.

    Args:
        pipe: the descriptor of the pipe.
        what: ``select.POLLIN`` to read, ``select.POLLOUT`` to write.
        deadline: the latest time, on the monotonic clock.
    """
    poll = select.poll()
    poll.register(pipe, what)
    left = deadline - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise _DeadlinePassedError


def _descriptor(pipe: Any) -> int:
    assert pipe is not None
    number: int = pipe.fileno()
    return number
