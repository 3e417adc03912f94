"""Nodes and applications of a scripted shell: they compute, answer and leave as simulated ones do.

Like the simulator's they do in no time what takes none. Unlike them they know nothing but the
messages on their streams: worlds, ranks and sessions are those of the wire.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from pliant.core.events import NodeRegistered
from pliant.core.model.negotiation import Verb
from pliant.protos import app_pb2, node_pb2
from pliant.protos.codec import template_from_proto, template_to_proto
from pliant.server.execution.connections import AppSession
from pliant.simulator import SimJob
from pliant.simulator.inputs.answer_models import agreed_size, answer, parse_answers
from pliant.simulator.run.job_run import Run, next_safe_point
from serverkit.scripted import Shell

#: In this order the events of one instant are taken.
END, ARRIVAL, OTHER = range(3)
#: Seconds to write a checkpoint, and to read it.
SAVE_S = 2.0
#: Turns at one instant; more is a quarrel without end.
MOST_TURNS = 1000


class World:
    """Everything outside of a server."""

    def __init__(
        self, shell: Shell, nodes: Sequence[NodeRegistered], jobs: Iterable[SimJob], interval: float
    ) -> None:
        self._shell, self._interval = shell, interval
        self._jobs = {job.id: job for job in jobs}
        self._node_of = [node.name for node in nodes for _ in range(node.slots)]
        self._runs: dict[int, Run] = {}
        self._sessions: dict[int, AppSession] = {}
        #: Per job and processor: world, resize and rank of the process there.
        self._living: dict[tuple[int, int], tuple[str, int, int]] = {}
        self._going: dict[int, app_pb2.Go] = {}
        #: Runs that were suspended, whose jobs have not started again.
        self._saved: dict[int, Run] = {}
        self._heap: list[tuple[float, int, int, Callable[[], None]]] = []
        self._serial = count()
        #: How often applications used which word.
        self.said: Counter[str] = Counter()
        shell.clock.time = min(job.submit for job in self._jobs.values())
        shell.register(nodes)
        for job in self._jobs.values():
            self._at(job.submit, ARRIVAL, partial(self._arrive, job))

    def run(self) -> None:
        """Let time pass until nothing is to happen any more."""
        shell = self._shell
        while self._heap or self._runs:
            times = [at for at in (shell.next_timer(),) if at is not None]
            times += [self._heap[0][0]] if self._heap else []
            shell.clock.time = now = max(shell.clock.time, min(times))
            ends = True
            while self._heap and self._heap[0][0] <= now:
                _, order, _, happen = heappop(self._heap)
                if ends and order != END:  # ends are heard of before arrivals
                    shell.ends()
                    ends = False
                happen()
            for _ in range(MOST_TURNS):
                sent = shell.turn()
                for to, message in sent:
                    self._take(to, message)
                if not (sent or shell.busy):
                    break
            else:
                raise AssertionError(f"no rest at {now}")

    def _at(self, time: float, order: int, happen: Callable[[], None]) -> None:
        heappush(self._heap, (time, order, next(self._serial), happen))

    # ---------------------------------------------------------------- users

    def _arrive(self, job: SimJob) -> None:
        number = self._shell.submit(
            sizes=str(job.sizes), estimate_s=job.estimate_s, priority=job.priority
        )
        assert number == job.id

    # ---------------------------------------------------------------- nodes

    def _take(self, to: Any, message: Any) -> None:
        body = message.WhichOneof("body")
        content = getattr(message, body)
        match body:
            case "start_world":
                self._start(to, content)
            case "kill":
                self._kill(to, content)
            case "control":
                self._control(content)
            case "offer":
                self._answer(to, content)
            case "go":
                self._go(to, content)
            case "withdraw":
                self._withdraw(to, content)
            case "suspend":
                self._suspend(to, content)
            case _:
                assert body == "exit_ack", message

    def _start(self, node: str, order: node_pb2.StartWorld) -> None:
        shell, job = self._shell, self._jobs[order.job]
        for place in order.ranks:
            self._living[job.id, place.processor] = (order.world, order.resize, place.rank)
        ready = node_pb2.WorldReady(
            world=order.world, job=order.job, run=order.run, resize=order.resize
        )
        shell.hear_node(node, world_ready=ready)
        everywhere = all((job.id, processor) in self._living for processor in order.processors)
        if order.resize or not everywhere:
            return
        run = self._runs[job.id] = Run(
            job, order.run, tuple(order.processors), shell.clock.time, job.adaptation_cost or 0.0
        )
        if job.id in self._saved:
            run.resume_from(self._saved.pop(job.id), SAVE_S)
        self._schedule_end(run)
        if job.malleable:
            session = self._sessions[job.id] = shell.session(job.id, order.run)
            shell.hear_app(session, hello=self._hello(order, job))

    @staticmethod
    def _hello(order: node_pb2.StartWorld, job: SimJob) -> app_pb2.Hello:
        return app_pb2.Hello(
            job=order.job,
            run=order.run,
            epoch=order.epoch,
            token=order.token,
            role=app_pb2.ROLE_COORDINATOR,
            processors=order.processors,
            sizes=str(job.sizes),
            rendezvous="nowhere:1",
        )

    def _schedule_end(self, run: Run) -> None:
        version = run.version

        def end() -> None:
            if run.version == version:
                run.finish(self._shell.clock.time)
                del self._runs[run.job.id]
                self._going.pop(run.job.id, None)
                self._leave(run.job.id, run.number, run.ranks)

        self._at(run.end, END, end)

    def _leave(self, job: int, run: int, processors: Iterable[int], signal: int = 0) -> None:
        """Processes are gone: each node says which of its own, world by world."""
        reports: dict[tuple[str, str, int], list[node_pb2.RankExit]] = {}
        for processor in processors:
            world, resize, rank = self._living.pop((job, processor))
            exit_ = node_pb2.RankExit(rank=rank, processor=processor, signal=signal)
            key = (self._node_of[processor], world, resize)
            reports.setdefault(key, []).append(exit_)
        for (node, world, resize), exits in reports.items():
            report = node_pb2.RanksExited(world=world, job=job, run=run, resize=resize, exits=exits)
            self._shell.hear_node(node, ranks_exited=report)

    def _kill(self, node: str, order: node_pb2.Kill) -> None:
        """Joining ranks of a resize that came to nothing; the scenarios kill nobody else."""
        assert order.processors, order
        there = [p for p in order.processors if (order.job, p) in self._living]
        self._leave(order.job, order.run, there, signal=15)

    # ---------------------------------------------------------------- applications

    def _control(self, order: node_pb2.Control) -> None:
        message = json.loads(order.message)
        if message["op"] != "standby":
            return
        job = int(order.world.split(".")[1][1:])
        run = self._runs[job]
        stands_by = app_pb2.Hello(
            job=job, run=run.number, role=app_pb2.ROLE_STANDBY, pending_resize=message["resize"]
        )
        self._shell.hear_app(self._shell.session(job, run.number), hello=stands_by)

    def _answer(self, job: int, message: app_pb2.Template) -> None:
        template = template_from_proto(message)
        if template.verb in (Verb.ACCEPT, Verb.REJECT) or job not in self._runs:
            return
        run = self._runs[job]
        now = len(run.ranks)
        model = parse_answers(run.job.answer or "always")
        said = answer(template, now, agreed_size(model, template, now, run.job.sizes, Random(0)))
        self.said[said.verb.name] += 1
        self._shell.hear_app(self._sessions[job], answer=template_to_proto(said))

    def _go(self, job: int, go: app_pb2.Go) -> None:
        run, now = self._runs[job], self._shell.clock.time
        self._going[job] = go
        at = next_safe_point(run.start, now, self._interval)
        if at <= now:
            self._adapt(job, go)
        else:
            self._at(at, OTHER, lambda: self._adapt(job, go))

    def _adapt(self, job: int, go: app_pb2.Go) -> None:
        if self._going.get(job) is not go:
            return
        del self._going[job]
        run, session, now = self._runs[job], self._sessions[job], self._shell.clock.time
        leaving = set(go.leaving_ranks)
        left = [processor for rank, processor in enumerate(run.ranks) if rank in leaving]
        stay = [processor for rank, processor in enumerate(run.ranks) if rank not in leaving]
        run.resize((*stay, *go.joining_processors), now)
        self._schedule_end(run)
        self._shell.hear_app(session, begun=app_pb2.Begun(resize=go.resize))
        outcome = app_pb2.Outcome(
            resize=go.resize, committed=True, epoch=go.epoch, processors=run.ranks, stage="commit"
        )
        self._shell.hear_app(session, outcome=outcome)
        self._leave(job, run.number, left)

    def _suspend(self, job: int, order: app_pb2.Suspend) -> None:
        if order.step == app_pb2.SUSPEND_STEP_LEAVE:
            run = self._saved[job] = self._runs.pop(job)
            run.finish(self._shell.clock.time)
            self._leave(job, run.number, run.ranks)
            return
        assert order.step == app_pb2.SUSPEND_STEP_SAVE, order
        run, now = self._runs[job], self._shell.clock.time
        at = next_safe_point(run.start, now, self._interval)
        self._at(max(at, now), OTHER, lambda: self._save(run, order.number))

    def _save(self, run: Run, number: int) -> None:
        now = self._shell.clock.time
        if run.ended or run.end <= now:
            return
        run.save(now)
        self.said["SAVED"] += 1
        self._say_saved(run, number, app_pb2.SAVE_WORD_BEGUN)
        self._at(now + SAVE_S, OTHER, lambda: self._say_saved(run, number, app_pb2.SAVE_WORD_SAVED))

    def _say_saved(self, run: Run, number: int, word: app_pb2.SaveWord.ValueType) -> None:
        report = app_pb2.SaveReport(number=number, word=word)
        self._shell.hear_app(self._sessions[run.job.id], save=report)

    def _withdraw(self, job: int, order: app_pb2.Withdraw) -> None:
        going = self._going.get(job)
        if going is not None and going.resize == order.resize:
            del self._going[job]
            withdrawn = app_pb2.Withdrawn(resize=order.resize)
            self._shell.hear_app(self._sessions[job], withdrawn=withdrawn)


__all__ = ["SAVE_S", "World"]
