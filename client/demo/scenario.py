"""The scenario of the demo: which jobs are submitted, and what must happen before the next."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from pliant.client.client_errors import ClientError, NoServerError, RequestError
from pliant.client.connection import Connection
from pliant.client.demo.view import DemoDisplay, Snapshot
from pliant.client.reconnecting import FINAL_STATES as _FINAL
from pliant.client.reconnecting import send_job
from pliant.client.submission.build_job import build_job

#: The program of every job.
PROGRAM = "pliant.examples.heat"
NODES, SLOTS = 4, 2
_POLL_S = 0.1
#: This variable of the submitter would override the transport of the demo.
_NETMOD = "MPIR_CVAR_CH4_NETMOD"


class StepError(ClientError):
    """A step of the scenario did not happen in time; the message names the observed state."""


class Scenario:
    """Submits the jobs of the demo, and waits for the events that must follow."""

    def __init__(self, directory: str, run: str, view: DemoDisplay, deadline_s: float) -> None:
        self._directory = directory
        self._link = Connection(run, timeout_s=10)
        self._view = view
        self._deadline = time.monotonic() + deadline_s
        self.begin = time.time()
        self.names: dict[int, str] = {}
        self.snapshot = Snapshot()
        #: Called after every `refresh`.
        self.on_refresh: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Close the connection to the server."""
        self._link.close()

    def run(self) -> None:
        """Submit the jobs one after the other, and wait for the effect of each before the next.

        Raises:
            StepError: an effect, such as a resize, was not observed within its time.
        """
        total = NODES * SLOTS
        heat = self._submit("heat", f"1-{total}")
        self._until(lambda: self._runs_on(heat, total), f"heat runs on {total} processors")
        self._until(lambda: self._progressed(heat), "heat computes")
        rigid = self._submit("rigid", "4")
        self._until(lambda: self._runs_on(rigid, 4), "the rigid job runs on 4 processors")
        self._view.say(f"heat was shrunk to {self._size(heat)}, the rigid job runs")
        second = self._submit("second", "1-4")
        self._until(lambda: self._started(second), "the second malleable job runs")
        self._view.say("processors are shared again; as jobs end, the rest expand")
        self._until(lambda: self._all_ended(heat, rigid, second), "all jobs have ended")

    def refresh(self) -> Snapshot:
        """Ask the server for jobs, nodes and events; show them and return them."""
        link = self._link
        self.snapshot = Snapshot(
            sorted(link.request("jobs", ids=None, all=True)["jobs"], key=lambda job: job["id"]),
            link.request("nodes")["nodes"],
            link.request("history", id=None)["events"],
        )
        self._view.show(self.snapshot)
        self.on_refresh()
        return self.snapshot

    def wait_idle(self, timeout_s: float = 5.0) -> int:
        """Wait until no processor is in use; return how many still are after ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while True:
            used = sum(int(node.get("used") or 0) for node in self.refresh().nodes)
            if not used or time.monotonic() >= deadline:
                return used
            time.sleep(_POLL_S)

    def output(self, name: str) -> str:
        """Return the output of a job; empty if it has none yet."""
        try:
            with open(os.path.join(self._directory, f"{name}.out"), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return ""

    def reasons(self) -> str:
        """Return state, reason and last output of each job that has not ended successfully."""
        lines = []
        for job in self.snapshot.jobs:
            if job["state"] == "COMPLETED":
                continue
            lines.append(f"{job['name']} ({job['id']}): {job['state']} {job.get('reason') or ''}")
            try:
                lines += [f"  {text}" for text in self._link.request("why", id=job["id"])["text"]]
            except (NoServerError, RequestError) as error:
                lines.append(f"  {error}")
            lines += [f"  | {text}" for text in self.output(job["name"]).splitlines()[-5:]]
        return "\n".join(lines)

    def _submit(self, name: str, sizes: str) -> int:
        job = build_job(
            [sys.executable, "-P", "-m", PROGRAM, os.path.join(self._directory, f"{name}.yaml")],
            sizes=sizes,
            name=name,
            chdir=self._directory,
            stdout=f"{name}.out",
            type="mpi",
            env={name: os.environ[name] for name in os.environ if name != _NETMOD},
        )
        number = send_job(self._link, job)
        self.names[number] = name
        self._view.say(f"submitted {name} for {sizes} processors")
        return number

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        while True:
            self.refresh()
            self._check_failures(what)
            if condition():
                return
            if time.monotonic() >= self._deadline:
                raise StepError(f"not in time: {what}")
            time.sleep(_POLL_S)

    def _check_failures(self, what: str) -> None:
        for job in self.snapshot.jobs:
            if job["state"] in _FINAL - {"COMPLETED"}:
                raise StepError(
                    f"{job['name']} ended {job['state']} ({job.get('reason') or 'no reason'}) "
                    f"before this: {what}"
                )

    def _size(self, number: int) -> int:
        return int(self.snapshot.job(number).get("processors") or 0)

    def _runs_on(self, number: int, size: int) -> bool:
        job = self.snapshot.job(number)
        if job.get("state") in _FINAL:
            raise StepError(f"{job['name']} ended before it ran on {size} processors")
        return job.get("state") in {"RUNNING", "ADAPTING"} and self._size(number) == size

    def _started(self, number: int) -> bool:
        return self.snapshot.job(number).get("state") in {"RUNNING", "ADAPTING"} | _FINAL

    def _progressed(self, number: int) -> bool:
        known: dict[str, Any] = self.snapshot.job(number).get("progress") or {}
        return bool(known.get("iteration"))

    def _all_ended(self, *numbers: int) -> bool:
        return all(self.snapshot.job(number).get("state") in _FINAL for number in numbers)
