"""Steps: programs that a script starts on the processors of its job, with ``pliant run``.

The shim of the script listens on a socket in the folder of its world. A client sends one request,
together with its own standard input, output and error, which the ranks of the step use directly.
Then it sends signals and gets one answer. Its disconnection ends the step.

``client -> shim``: ``run`` (with three descriptors), ``signal``.
``shim -> client``: ``started``, ``ended`` or ``refused``.

Each message is a JSON object in one line. Steps wait for free processors in the order of their
requests. They end with the script, because the shim ends all processes below itself then.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from pliant.nodectl.host import procfs, shared_memory
from pliant.nodectl.shim import ranks as rank_processes
from pliant.nodectl.shim.event_loop import EventLoop, LineSplitter, SocketChannel
from pliant.nodectl.shim.exec import LaunchSpec, read_failures, start
from pliant.nodectl.shim.foreign_mpi import SingletonDetector, library_without_pmi
from pliant.nodectl.shim.pmi import Abort, Barrier, Effect, PmiServer, Reply
from pliant.nodectl.shim.ranks import Rank
from pliant.nodectl.shim.step_socket import StepSocket
from pliant.nodectl.spool import NOT_USABLE, Spool, StartRequest

#: Seconds between two looks for processes that the ranks of a step have left behind.
_LEFTOVERS_INTERVAL_S = 0.05

#: Variables of the script that its steps do not get.
_NOT_INHERITED = ("PLIANT_STEP_SOCKET", "PLIANT_HOST_FILE")


class _Step:
    """One step, from its request to its end."""

    def __init__(self, number: int, request: StartRequest, stdio: list[int]) -> None:
        self.number = number
        #: With as many ranks as the step has; their processors are set when it starts.
        self.request = request
        self.stdio = stdio
        self.client: SocketChannel | None = None
        self.ranks: dict[int, Rank] = {}
        self.pmi: PmiServer | None = None
        self.singletons: SingletonDetector | None = None
        #: The first failure of a rank: exit code, signal and reason.
        self.failure: tuple[int, int, str] | None = None
        self.is_ending = False

    @property
    def mark(self) -> bytes:
        """Return the variable by which its processes are recognised."""
        return f"PLIANT_STEP={self.number}".encode()

    def tell(self, **message: Any) -> None:
        """Send a message to the client, which may have gone."""
        if self.client is not None:
            self.client.send(json.dumps(message).encode() + b"\n")

    def close_stdio(self) -> None:
        """Close the client's input, output and error in this process."""
        for handle in self.stdio:
            os.close(handle)
        self.stdio = []


class StepManager:
    """Runs the steps of a script on the processors that its job has on this node."""

    def __init__(self, loop: EventLoop, spool: Spool, request: StartRequest) -> None:
        """Listen for requests.

        Args:
            loop: of the shim.
            spool: the folder of the world, which gets the socket.
            request: of the world.
        """
        self._loop, self._request = loop, request
        self._socket = StepSocket(loop, spool, self._on_request)
        #: Local numbers of the processors that no step uses, in rank order.
        self._free = list(range(len(request.ranks)))
        self._waiting: list[_Step] = []
        self._running: list[_Step] = []
        self._count = 0
        self._failures, self._failure_pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def reap(self, pid: int, status: int) -> None:
        """Note that a child of this process has ended, if it is a rank of a step."""
        for step in self._running:
            for rank in step.ranks.values():
                if rank.runs and rank.pid == pid:
                    self._on_exit(step, rank, status)
                    return

    def close(self) -> None:
        """Stop listening; the processes of steps have ended."""
        self._socket.close()
        for step in [*self._waiting, *self._running]:
            step.close_stdio()
            if step.client is not None:
                step.client.close()
        os.close(self._failures)
        os.close(self._failure_pipe)

    # ------------------------------------------------------------------ requests

    def _on_request(self, sent: dict[str, Any], stdio: list[int]) -> Callable[..., None]:
        """Queue a step; return the function that takes the client's connection."""
        self._count += 1
        step = _Step(self._count, self._request, stdio)
        reason = self._read(step, sent)
        return partial(self._on_client, step, reason)

    def _on_client(self, step: _Step, reason: str, client: socket.socket) -> None:
        step.client = SocketChannel(
            self._loop,
            client,
            LineSplitter(partial(self._on_message, step)),
            partial(self._on_client_gone, step),
        )
        if reason:
            step.tell(op="refused", reason=reason)
            step.close_stdio()
            return
        self._waiting.append(step)
        self._start_waiting()

    def _read(self, step: _Step, sent: dict[str, Any]) -> str:
        """Take over the values of a request; return why it is refused, or an empty text."""
        ours, most = self._request, len(self._request.ranks)
        argv = [str(word) for word in sent["argv"]]
        size = int(sent["size"]) or most
        if not argv or len(step.stdio) != 3:
            return "the request is incomplete"
        if size > ours.size:
            return f"-n {size} is more than the {ours.size} processors of job {ours.job}"
        if size > most:
            return (
                f"-n {size} is more than the {most} processors that job {ours.job} has on node "
                f"{ours.node_name}: steps run on the node of the script"
            )
        environment = {str(name): str(value) for name, value in sent["env"].items()}
        for name in _NOT_INHERITED:
            environment.pop(name, None)
        step.request = replace(
            ours,
            world=f"{ours.world}.s{step.number}",
            type="mpi",
            argv=argv,
            environment=environment | {"PLIANT_STEP": str(step.number)},
            directory=str(sent["cwd"]),
            umask=int(sent["umask"]),
            size=size,
            mapping=f"(vector,(0,1,{size}))",
            spans_nodes=False,
        )
        if (library := library_without_pmi(step.request)) is not None and size > 1:
            return f"program {argv[0]} is linked with {library}: start it with its own mpiexec"
        return ""

    def _on_message(self, step: _Step, line: bytes) -> None:
        try:
            sent = json.loads(line)
            number = signal.Signals(int(sent["number"])) if sent["op"] == "signal" else None
        except (ValueError, TypeError, KeyError):
            return  # a client that sends something else harms only itself
        if number is None:
            return
        if step in self._waiting:
            self._on_client_gone(step)
            step.tell(op="ended", code=0, signal=int(number), reason="it had not started")
            return
        for rank in step.ranks.values():
            if rank.runs and not rank_processes.signal_group(rank.pid, number):
                rank_processes.send_signal(rank.pid, number)

    def _on_client_gone(self, step: _Step) -> None:
        if step in self._waiting:
            self._waiting.remove(step)
            step.close_stdio()
        elif step in self._running:
            self._end(step)

    # ------------------------------------------------------------------ ranks

    def _start_waiting(self) -> None:
        """Start steps in the order of their requests, as long as enough processors are free."""
        while self._waiting and self._waiting[0].request.size <= len(self._free):
            self._start(self._waiting.pop(0))

    def _start(self, step: _Step) -> None:
        size = step.request.size
        places, self._free = self._free[:size], self._free[size:]
        ours = self._request
        processors = [ours.ranks[place][1] for place in places]
        request = step.request = replace(
            step.request,
            ranks=list(enumerate(processors)),
            cpus=[ours.cpus[place] for place in places] if ours.cpus else [],
            devices={kind: [each[p] for p in places] for kind, each in ours.devices.items()},
        )
        request.environment["PLIANT_PROCESSORS"] = ",".join(map(str, processors))
        step.pmi = PmiServer(request.world, size, range(size), request.mapping)
        self._running.append(step)
        for rank, processor in request.ranks:
            step.ranks[rank] = self._start_rank(step, rank, processor)
        step.close_stdio()
        foreign = partial(self._fail, step)
        step.singletons = SingletonDetector(self._loop, request, step.ranks, foreign)
        step.tell(op="started", step=step.number, processors=processors)
        self._check(step)

    def _start_rank(self, step: _Step, rank: int, processor: int) -> Rank:
        request = step.request
        ours, theirs = socket.socketpair()
        variables = {
            **request.environment,
            "PLIANT_PROCESSOR": str(processor),
            **rank_processes.device_variables(
                {kind: every[rank] for kind, every in request.devices.items()}
            ),
            **rank_processes.mpi_variables(request, rank, rank, theirs.fileno()),
        }
        source, output, error = step.stdio
        spec = LaunchSpec(
            request,
            variables,
            (theirs.fileno(),),
            self._failure_pipe,
            request.cpus[rank] if request.cpus and not request.shares_cpus else (),
            request.cpus[rank] if request.shares_cpus else (),
            stdio=(source if rank == 0 else -1, output, error),
        )
        try:
            started = Rank(rank, processor, start(spec))
        except OSError as error_:
            reason = f"cannot start: fork: {error_.strerror}"
            ours.close()
            started = Rank(rank, processor, 0, status=NOT_USABLE << 8, end_reason=reason)
            step.failure = NOT_USABLE, 0, reason
        else:
            splitter = LineSplitter(partial(self._on_pmi, step, rank))
            started.pmi = SocketChannel(self._loop, ours, splitter)
        theirs.close()
        return started

    def _on_pmi(self, step: _Step, rank: int, line: bytes) -> None:
        if step.singletons is not None:
            step.singletons.stop()
            step.singletons = None
        if step.pmi is not None:
            self._apply(step, step.pmi.handle(rank, line))

    def _apply(self, step: _Step, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(rank, data):
                    channel = step.ranks[rank].pmi
                    if channel is not None:
                        channel.send(data)
                case Barrier():
                    assert step.pmi is not None
                    self._apply(step, step.pmi.release({}))
                case Abort(rank, code, message):
                    text = f" ({message.strip()})" if message.strip() not in {"", "abort"} else ""
                    self._fail(step, f"rank {rank} aborted with code {code}{text}", code or 1)

    # ------------------------------------------------------------------ ends

    def _fail(self, step: _Step, reason: str, code: int = 1) -> None:
        """End a step with a reason, unless it has failed before."""
        step.failure = step.failure or (code, 0, reason)
        self._end(step)

    def _end(self, step: _Step) -> None:
        """Ask the ranks of a step to end, and kill them after the grace time."""
        if step.is_ending:
            return
        step.is_ending = True
        for rank in step.ranks.values():
            if rank.runs:
                rank_processes.ask_to_end(rank)
                kill = partial(self._kill, rank)
                rank.kill_at = self._loop.after(self._request.grace_s, kill)

    def _kill(self, rank: Rank) -> None:
        if rank.runs:
            rank_processes.kill(rank)

    def _on_exit(self, step: _Step, rank: Rank, status: int) -> None:
        if rank.pmi is not None:
            rank.pmi.drain()  # its last message may be an abort
        verdict = step.singletons.verdict() if step.singletons is not None else None
        rank.status = status
        rank.close()
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = os.WEXITSTATUS(status) if not number else 0
        reason = ""
        for pid, failed in read_failures(self._failures).items():
            if pid == rank.pid:
                code, reason = failed
        if not status and verdict is not None:
            code, reason = verdict
        if (code or number) and step.failure is None and not step.is_ending:
            where = f"rank {rank.rank} of {step.request.size}"
            how = f"was ended by signal {number}" if number else f"exited with code {code}"
            step.failure = code, number, reason or f"{where} {how}"
            self._end(step)
        elif number and step.failure is None:
            step.failure = 0, number, ""
        self._check(step)

    def _check(self, step: _Step) -> None:
        """Finish a step when all its processes have ended."""
        if step not in self._running or any(rank.runs for rank in step.ranks.values()):
            return
        if step.singletons is not None:
            step.singletons.stop()
            step.singletons = None
        if left := self._leftovers(step):
            rank_processes.kill_all(rank_processes.stop_all(lambda: left))
            self._loop.after(_LEFTOVERS_INTERVAL_S, partial(self._check, step))
            return
        self._finish(step)

    def _leftovers(self, step: _Step) -> list[int]:
        """Return the running processes that the ranks of a step have left behind."""
        return [
            pid
            for pid in procfs.descendants(os.getpid())
            if step.mark in procfs.environment(pid)
            and (stat := procfs.read_stat(pid)) is not None
            and stat.state not in procfs.ENDED_STATES
        ]

    def _finish(self, step: _Step) -> None:
        self._running.remove(step)
        request = step.request
        shared_memory.unlink(shared_memory.world_segments(request.world, request.mapping, 0))
        numbers = {processor: place for place, (_, processor) in enumerate(self._request.ranks)}
        self._free = sorted([*self._free, *(numbers[p] for _, p in request.ranks)])
        code, number, reason = step.failure or (0, 0, "")
        step.tell(op="ended", code=code, signal=number, reason=reason)
        self._start_waiting()
