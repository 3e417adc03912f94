"""The daemon of a cluster in a Slurm allocation: starts nodes, and saves jobs before the end.

The daemon runs ``srun``, which starts `node_agent` on each node. A configured number of seconds
before the allocation ends, the daemon saves the jobs and takes the cluster down. It does the same
when Slurm signals the nodes, when ``srun`` has ended, and on SIGTERM.
"""

from __future__ import annotations

import json
import logging
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pliant.client.client_errors import ClientError, NoServerError, RequestError
from pliant.client.cluster.host_list import Host
from pliant.client.cluster.remote import allocation
from pliant.client.cluster.remote.host_admission import HostAdmission, joining_port
from pliant.client.cluster.remote.node_agent import MODULE as AGENT
from pliant.client.cluster.remote.node_start_message import NodeStartMessage, encode_start_messages
from pliant.client.cluster.remote.save_jobs_before_end import save_jobs
from pliant.client.connection import Connection
from pliant.client.paths import run_dir, state_dir
from pliant.core.support.plural import plural
from pliant.protos.address import TcpAddress
from pliant.protos.daemons.atomic_files import write_whole

log = logging.getLogger("pliant.slurm")

MODULE = "pliant.client.cluster.remote.slurm_nodes"
#: In the state folder: what became of the nodes, for `pliant up`.
STATUS_FILE = "allocation.json"
#: Ending the nodes takes part of the time before the end; Slurm itself needs some, too.
_NODES_END_S = 20.0
#: After a signal, Slurm waits `KillWait` (30 s if it is not configured) before it kills.
_SAVE_AFTER_SIGNAL_S = 12.0
_END_QUERY_S = 30.0
_SERVER_TIMEOUT_S = 60.0
_SRUN_TIMEOUT_S = 40.0
#: Variables of the job that would limit the step to a part of the allocation.
_LIMITS = (
    *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK"),
    *("SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_DISTRIBUTION", "SLURM_EXACT"),
    *("SLURM_EXCLUSIVE", "SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_MEM_PER_CPU"),
    *("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_GPU", "SLURM_THREADS_PER_CORE"),
)


@dataclass(frozen=True)
class SlurmDaemonSettings:
    """The settings of the daemon in a Slurm allocation, passed as JSON on its command line.

    They contain no secrets.
    """

    job: str
    hosts: tuple[Host, ...]
    #: Where the nodes reach the server.
    address: str
    options: tuple[str, ...]
    node_dir: str
    save_before_s: float

    def encode(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> SlurmDaemonSettings:
        """Return the settings in a JSON text."""
        data = json.loads(text)
        hosts = tuple(Host(**each) for each in data.pop("hosts"))
        return cls(**{**data, "hosts": hosts, "options": tuple(data.pop("options"))})


def main(argv: list[str]) -> int:
    """Run this daemon until the allocation of Slurm ends or a signal arrives.

    Args:
        argv: a `SlurmDaemonSettings` as JSON.

    Returns:
        The exit code.
    """
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s allocation %(message)s")
    try:
        return SlurmNodes(SlurmDaemonSettings.decode(argv[0]), state_dir(), run_dir()).run()
    except (ClientError, OSError) as error:
        log.error("%s", error)
        return 1


class SlurmNodes:
    """Starts and ends node controllers on the nodes of a Slurm allocation."""

    def __init__(self, settings: SlurmDaemonSettings, state: str, run: str) -> None:
        self._settings, self._state, self._run = settings, state, run
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._srun: subprocess.Popen[bytes] | None = None
        self._errors: dict[str, str] = {}
        self._end = math.inf

    def run(self) -> int:
        """Start the nodes, and end the cluster before the allocation ends; return the exit code.

        This waits until the allocation is about to end, Slurm signals the nodes, no node is left,
        or this process gets a signal. Then it saves the jobs and ends the server and the nodes.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._events.put({"stop": f"signal {number}"}))
        self._write_status()
        threading.Thread(target=self._watch_end, daemon=True).start()
        try:
            if self._wait_for_server():
                self._start_srun()
                self._end_cluster(self._wait())
        finally:
            self._end_srun()
        return 0

    # -- start

    def _wait_for_server(self) -> bool:
        """Wait until the server answers; return False if this process is told to stop earlier."""
        deadline = time.monotonic() + _SERVER_TIMEOUT_S
        while True:
            try:
                with Connection(self._run, timeout_s=10) as link:
                    link.request("nodes")
                joining_port(self._run)
                return True
            except (NoServerError, RequestError):
                pass  # it is starting
            except ClientError:
                if time.monotonic() >= deadline:
                    raise
            if time.monotonic() >= deadline:
                raise ClientError(f"the server did not answer within {_SERVER_TIMEOUT_S:g} s")
            try:
                if "stop" in self._events.get(timeout=0.05):
                    return False
            except queue.Empty:
                pass

    def _start_srun(self) -> None:
        count = len(self._settings.hosts)
        command = ["srun", f"--jobid={self._settings.job}", f"--nodes={count}", f"--ntasks={count}"]
        command += ["--ntasks-per-node=1", "--overlap", "--mem=0", "--mpi=none", "--cpu-bind=none"]
        command += [f"--nodelist={','.join(host.name for host in self._settings.hosts)}"]
        # The other nodes go on if one is lost.
        command += ["--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--unbuffered", "--quiet"]
        command += ["--job-name=pliant", sys.executable, "-P", "-m", AGENT, "serve"]
        env = {key: value for key, value in os.environ.items() if key not in _LIMITS}
        self._srun = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        threading.Thread(target=self._read_answers, args=(self._srun,), daemon=True).start()
        assert self._srun.stdin is not None
        try:
            self._srun.stdin.write(encode_start_messages(self._make_messages()))
            self._srun.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: its end is among the events
        log.info("started %s of job %s", plural(count, "node"), self._settings.job)

    def _make_messages(self) -> list[NodeStartMessage]:
        admission = HostAdmission(self._state)
        server = TcpAddress(self._settings.address, joining_port(self._run))
        # Jobs of Slurm may share the folder of temporary files of a node.
        cluster_id = f"{admission.cluster_id}-{self._settings.job}"
        return [
            NodeStartMessage(
                host.name,
                cluster_id,
                admission.make_token(host.name, server, host.slots),
                str(server),
                ("--slots", str(host.slots), *self._settings.options),
                self._settings.node_dir,
            )
            for host in self._settings.hosts
        ]

    def _read_answers(self, srun: subprocess.Popen[bytes]) -> None:
        assert srun.stdout is not None
        for line in srun.stdout:
            try:
                answer = json.loads(line)
            except ValueError:
                log.warning("srun: %s", line.decode("utf-8", "replace").rstrip())
                continue
            if isinstance(answer, dict):
                self._events.put(answer)
        self._events.put({"stop": f"srun has ended with {srun.wait()}"})

    # -- until the end

    def _watch_end(self) -> None:
        """Ask Slurm repeatedly when the allocation ends, because its time limit may be changed."""
        while True:
            end = allocation.end_of(self._settings.job)
            if end is not None and end != self._end:
                if abs(end - self._end) > 5:
                    log.info("the allocation ends in %.0f s", end - time.time())
                self._end = end
            time.sleep(_END_QUERY_S)

    def _wait(self) -> str:
        """Wait until the cluster must end, and return why."""
        while True:
            if time.time() >= self._end - self._settings.save_before_s:
                return f"the allocation ends in {self._end - time.time():.0f} s"
            try:
                event = self._events.get(timeout=0.2)
            except queue.Empty:
                continue
            if reason := event.get("stop"):
                return str(reason)
            self._note(event)
            if event.get("event") == "signal":
                self._end = min(self._end, time.time() + _SAVE_AFTER_SIGNAL_S + _NODES_END_S)
                return f"Slurm ends the nodes (signal {event.get('number')})"
            if len(self._errors) == len(self._settings.hosts):
                return "no node is left"

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("event") != "failed":
            log.info("node %s: %s", event.get("node"), event.get("event"))
            return
        text = f"{event.get('step')}: {event.get('error')}"
        log.error("node %s: %s", event.get("node"), text)
        self._errors[str(event.get("node"))] = text
        self._write_status()

    def _write_status(self, ended: str = "") -> None:
        status = {"errors": self._errors, "ended": ended}
        write_whole(Path(self._state, STATUS_FILE), json.dumps(status))

    # -- the end

    def _end_cluster(self, reason: str) -> None:
        """Save the jobs and end the server. The nodes are ended afterwards, by `_end_srun`."""
        log.info("ending the cluster: %s", reason)
        now = time.time()
        cancel_at = min(self._end - _NODES_END_S, now + self._settings.save_before_s)
        if not math.isfinite(self._end):
            cancel_at = now + _SAVE_AFTER_SIGNAL_S
        try:
            jobs = save_jobs(self._run, cancel_at, cancel_at)
            self._write_status(_describe(reason, jobs.saved, jobs.cancelled))
            log.info("%s", _describe(reason, jobs.saved, jobs.cancelled))
            with Connection(self._run, timeout_s=10) as link:
                link.request("stop")
        except (NoServerError, RequestError) as error:
            log.info("no server: %s", error)
            self._write_status(reason)

    def _end_srun(self) -> None:
        """End the nodes by closing the standard input of `srun`; each node then ends its jobs."""
        srun = self._srun
        if srun is None:
            return
        assert srun.stdin is not None
        try:
            srun.stdin.close()
        except BrokenPipeError:
            pass
        try:
            srun.wait(timeout=_SRUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            log.error("srun does not end: killing it")
            srun.kill()
            srun.wait()
        log.info("the nodes have ended")


def _describe(reason: str, saved: list[int], cancelled: list[int]) -> str:
    parts = [reason]
    for jobs, what in ((saved, "saved, continue in the next cluster"), (cancelled, "cancelled")):
        if jobs:
            parts.append(f"{plural(len(jobs), 'job')} {what}: {', '.join(map(str, jobs))}")
    return "; ".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
