"""A cluster on this machine: its daemons, how they are found again and started."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from pliant.client.client_errors import ClientError, NoServerError, RequestError, UsageError
from pliant.client.cluster import process_table
from pliant.client.cluster.cluster_spec import ClusterSpec, load_spec
from pliant.client.cluster.daemons import Daemon, describe_code, state_dir_of
from pliant.client.connection import Connection
from pliant.client.paths import SOCKET, check_directories
from pliant.core.support.plural import plural

#: Commands that start the daemons; node controllers also get their name and slots.
SERVER = (sys.executable, "-P", "-m", "pliant.server")
CONTROLLER = (sys.executable, "-P", "-m", "pliant.nodectl")

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
#: Seconds that `up` waits for a stopped daemon (SIGSTOP) to be continued.
_STOPPED_WAIT_S = 1.0
#: The reason of nodes that `down` drains, so that no job starts while it cancels jobs; `up` resumes
#: the nodes with this reason.
DOWN_REASON = "pliant down"
#: Names of the nodes of a cluster on this machine.
_OWN_NAME = re.compile(r"[ns][1-9][0-9]*")
#: States of a node whose controller has registered, including drained nodes.
_REPORTED = {"UP", "SPARE", "DRAINING", "DRAINED"}
#: The file in the run directory from which controllers read the server's address.
ADDRESS = "server.address"

#: The module that launchers and shims run; a shim outlives its controller together with its job.
_LAUNCHER = "pliant.nodectl.launcher"
#: The modules that the daemons run, see `process_table.program`.
_SERVER, _CONTROLLER = "pliant.server", "pliant.nodectl"
#: Names of the files in the state directory that daemons keep locked.
_LOCKS = {"server.lock", "lock"}
#: Variables of a job that the daemons of a cluster inside that job must not inherit.
_JOB_VARIABLES = {"PLIANT_JOB", "PLIANT_TOKEN_FILE"}

Report = Callable[[str], None]


class LocalCluster:
    """A cluster on this machine: the daemons that belong to one state directory."""

    def __init__(self, state: str, run: str, spec: ClusterSpec | None = None) -> None:
        """Use the cluster in these directories.

        Args:
            state: the state directory of the cluster.
            run: its run directory, which has the server's socket.
            spec: its specification; None for the one that is stored in the state directory.
        """
        self.state, self.run = state, run
        self.spec = spec or load_spec(state) or ClusterSpec()
        self.daemons: list[Daemon] = []
        self._build()

    # -- what it is made of

    @property
    def _owner(self) -> str:
        """Return the path of the file in the run directory that names the state directory."""
        return os.path.join(self.run, "cluster.state-dir")

    def check_owner(self) -> None:
        """Check that this cluster may use the run directory.

        Raises:
            ClientError: another running cluster uses this run directory, or this cluster already
                runs with a different one.
        """
        self._check_run()
        try:
            with open(self._owner, encoding="utf-8", errors="surrogateescape") as file:
                owner = file.read()
        except OSError:
            return
        if owner != os.path.realpath(self.state) and self.running():
            raise ClientError(
                f"the daemons that run in {self.run} belong to the cluster in {owner}: name that "
                "one (PLIANT_STATE_DIR), or give this one a PLIANT_RUN_DIR of its own"
            )

    def _check_run(self) -> None:
        for daemon in self.all_daemons():
            run = process_table.environment(daemon.running_pid()).get("PLIANT_RUN_DIR") or self.run
            if os.path.realpath(run) != os.path.realpath(self.run):
                raise ClientError(
                    f"the cluster in {self.state} runs with another run directory: name it with "
                    f"PLIANT_RUN_DIR={run}"
                )

    def release_run_dir(self) -> None:
        """Give up the run directory by removing the file that names its owner."""
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._owner)

    def reload_spec(self) -> None:
        """Read the specification in the state directory again."""
        self.spec = load_spec(self.state) or ClusterSpec()
        self._build()

    def configure(self, spec: ClusterSpec) -> None:
        """Use a specification from now on; the caller stores it on disk when the cluster is up.

        Raises:
            ClientError: daemons run with another specification, the files of running daemons were
                removed from the state directory, or another account could change the directories.
        """
        if process_table.find(self._lost_its_lock):
            raise ClientError(
                f"state directory: {self.state}: what the cluster kept there was removed or "
                "moved while it ran; end it with `pliant down`, then bring it up anew"
            )
        if spec != self.spec and self.running():
            raise ClientError(
                f"a cluster of {plural(self.spec.nodes, 'node')} with "
                f"{plural(self.spec.slots, 'slot')} each runs in {self.state}; to change it, take "
                "it down first (`pliant down`), then bring it up anew"
            )
        self.spec = spec
        self._make_directories()
        with open(self._owner, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(os.path.realpath(self.state))
        self._build()

    def _make_directories(self) -> None:
        for directory in (self.state, self.run):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        check_directories(self.state, self.run)

    def _build(self) -> None:
        self.daemons = [self._server(), *self._node_daemons()]

    def _node_daemons(self) -> list[Daemon]:
        """Return the node controllers on this machine, one for each node of the specification."""
        return [self._controller(name) for name in self.spec.node_names]

    def all_daemons(self) -> list[Daemon]:
        """Return all daemons of the cluster, including those of nodes no longer configured.

        These nodes are found by their folders in the state directory.
        """
        known = {daemon.name for daemon in self.daemons}
        folders = sorted(os.listdir(self.state)) if os.path.isdir(self.state) else []
        more = [name for name in folders if name.startswith("node-") and name not in known]
        return [*self.daemons, *(self._controller(name.removeprefix("node-")) for name in more)]

    def _server(self) -> Daemon:
        command = [*SERVER, *self._server_options(self.spec)]
        log = os.path.join(self.state, "server.log")
        lock = os.path.join(self.state, "server.lock")
        return Daemon("server", command, _SERVER, "", self._pid_file("server"), log, lock)

    def _server_options(self, spec: ClusterSpec) -> list[str]:
        """Return the command-line options of the server for a specification."""
        options = []
        if spec.config:
            # The file may be used for several clusters; the folders are those of this cluster.
            options += ["--config", spec.config, "--state-dir", self.state, "--run-dir", self.run]
        if spec.strategy:
            options += ["--strategy", spec.strategy]
        for option in spec.strategy_options:
            options += ["--strategy-option", option]
        return options

    def check(self, spec: ClusterSpec) -> None:
        """Let the server check its configuration and options before anything is saved or started.

        Raises:
            UsageError: the server refuses its configuration or options; with its message.
            ClientError: the server would not start for another reason; with its message.
        """
        options = self._server_options(spec)
        if not options:
            return
        done = subprocess.run(
            [*SERVER, *options, "--check"],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        if done.returncode:
            words = done.stderr.strip().removeprefix("pliant server: ")
            if words and done.returncode == UsageError.exit_code:
                raise UsageError(words)
            raise ClientError(words or f"the server ended with {describe_code(done.returncode)}")

    def _controller(self, name: str) -> Daemon:
        command = [*CONTROLLER, "--name", name, "--slots", str(self.spec.slots)]
        command += ["--address-file", os.path.join(self.run, ADDRESS), *self._binding(name)]
        if self.spec.transport:
            command += ["--transport", self.spec.transport]
        if name in self.spec.spare_node_names:
            command.append("--spare")
        if site := self.spec.site_of(name):
            command += ["--cluster", site]
        if self.spec.most_processes:
            command += ["--most-processes", str(self.spec.most_processes)]
        log, lock = self.node_file(name, "nodectl.log"), self.node_file(name, "lock")
        pid_file = self._pid_file(f"node-{name}")
        return Daemon(f"node-{name}", command, _CONTROLLER, name, pid_file, log, lock)

    def _binding(self, name: str) -> list[str]:
        """Return the options that divide the CPUs of this machine among the nodes.

        Without them, each node would bind its jobs to the same CPUs. If there are too few CPUs for
        the slots of all nodes, jobs are not bound.
        """
        names = self.spec.node_names
        if len(names) <= 1:
            return []
        cpus, each = sorted(os.sched_getaffinity(0)), self.spec.slots
        if len(names) * each > len(cpus):
            return ["--no-bind"]
        each = len(cpus) // len(names)
        at = names.index(name) if name in names else 0
        return ["--cpus", ",".join(map(str, cpus[at * each : (at + 1) * each]))]

    def node_file(self, node: str, file: str) -> str:
        """Return the path of a file in the folder of a node."""
        return os.path.join(self.state, f"node-{node}", file)

    def _pid_file(self, name: str) -> str:
        return os.path.join(self.run, f"{name}.pid")

    def environment(self) -> dict[str, str]:
        """Return the environment variables with which the daemons are started.

        These are the variables of this process, without those that a job gets, and the paths of the
        state directory and the run directory.
        """
        own = {"PLIANT_STATE_DIR": self.state, "PLIANT_RUN_DIR": self.run}
        inherited = {name: os.environ[name] for name in os.environ if name not in _JOB_VARIABLES}
        return {**inherited, **own}

    def running(self) -> list[Daemon]:
        """Return the daemons of this cluster that are running now."""
        return [daemon for daemon in self.all_daemons() if daemon.running_pid()]

    def is_up(self) -> bool:
        """Return whether the server of this cluster runs and can be reached."""
        return bool(self.daemons[0].running_pid()) and self._is_reachable()

    def owns(self, pid: int) -> bool:
        """Return whether a process is a daemon, launcher, shim or job process of this cluster."""
        return self.is_job_process(pid) or self.is_launcher_or_shim(pid) or self.is_daemon(pid)

    def is_daemon(self, pid: int) -> bool:
        """Return whether a process is the server or a node controller of this cluster."""
        return process_table.program(pid) in {_SERVER, _CONTROLLER} and self._belongs_here(pid)

    def _lost_its_lock(self, pid: int) -> bool:
        """Return whether a process is a daemon of this cluster whose lock was removed or moved."""
        locks = f"{os.path.realpath(self.state)}/"
        return self.is_daemon(pid) and any(
            path.endswith(" (deleted)") or not path.startswith(locks)
            for path in process_table.open_files(pid)
            if os.path.basename(path.removesuffix(" (deleted)")) in _LOCKS
        )

    def is_launcher_or_shim(self, pid: int) -> bool:
        """Return whether a process of this cluster starts job processes: a launcher or a shim."""
        return process_table.program(pid) == _LAUNCHER and self._belongs_here(pid)

    def _belongs_here(self, pid: int) -> bool:
        state = state_dir_of(pid)
        return bool(state) and os.path.realpath(state) == os.path.realpath(self.state)

    def is_job_process(self, pid: int) -> bool:
        """Return whether a process belongs to a job of this cluster."""
        env = process_table.environment(pid)
        token = os.path.realpath(env.get("PLIANT_TOKEN_FILE", "/"))
        return "PLIANT_JOB" in env and token.startswith(os.path.realpath(self.state) + "/")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Within this context, keep other `pliant up` and `pliant down` out of this directory."""
        os.makedirs(self.state, mode=0o700, exist_ok=True)
        with open(os.path.join(self.state, "cluster.lock"), "w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # -- up

    def prepare(self, report: Report) -> None:
        """Determine what the daemons need for their start, such as the server's address.

        `pliant up` calls this before it starts a daemon; the user may interrupt it. For nodes on
        this machine, nothing needs to be determined.

        Args:
            report: called with a text that says what is being done.

        Raises:
            ClientError: the daemons cannot be started.
        """

    def start_missing(self) -> list[Daemon]:
        """Start the daemons that do not run, and return them.

        A server that runs but cannot be reached is ended first and started again.
        """
        server = self.daemons[0]
        if server.running_pid() and not self._is_reachable():
            # Its run directory was removed. Jobs continue, and the next server takes them over.
            server.end(STOP_TIMEOUT_S)
        missing = [daemon for daemon in self.daemons if not daemon.running_pid()]
        env = self.environment()
        for daemon in self.daemons:
            daemon.restore_pid_file()
        for daemon in missing:
            daemon.process = None
            daemon.start(env)
        return missing

    def _is_reachable(self) -> bool:
        return all(os.path.exists(os.path.join(self.run, name)) for name in (SOCKET, ADDRESS))

    def undo_start(self) -> None:
        """End all daemons that this process has started.

        `pliant up` calls this if the cluster did not start.
        """
        self.end_own_daemons()

    def end_own_daemons(self) -> None:
        """End and reap the daemons that this process has started, and remove their pid files."""
        for daemon in reversed(self.daemons):
            if daemon.process is not None:
                daemon.end(5.0)

    def detach(self) -> None:
        """Let the daemons outlive this process."""
        for daemon in self.daemons:
            daemon.detach()

    def wait_up(self, report: Report, timeout_s: float = START_TIMEOUT_S) -> list[str]:
        """Wait until every node has registered; call ``report`` with each change.

        Returns:
            A text for each node that could not be started although the cluster is up.

        Raises:
            DaemonDiedError: a daemon has ended.
            ClientError: daemons are stopped (SIGSTOP), or nodes did not register in time.
        """
        self._wait_for_nodes(self.spec.node_names, report, timeout_s)
        return []

    def _wait_for_nodes(self, names: Sequence[str], report: Report, timeout_s: float) -> None:
        """Wait until the server answers and the nodes with these names have registered.

        Raises:
            DaemonDiedError: a daemon has ended.
            ClientError: daemons are stopped (SIGSTOP), or this took longer than ``timeout_s``.
        """
        deadline, reported, nodes = time.monotonic() + timeout_s, "", len(names)
        while True:
            for daemon in self.daemons:
                daemon.check()
            self._wait_for_stopped()
            registered = self.registered()
            up = len((registered or set()).intersection(names))
            state = "starting" if registered is None else "up"
            text = f"server {state}" + (f", {up} of {plural(nodes, 'node')} up" if names else "")
            if text != reported:
                report(text)
                reported = text
            if registered is not None and up >= nodes:
                return
            if time.monotonic() >= deadline:
                logs = "\n".join(f"{d.name}: {d.log}\n{d.tail(5)}" for d in self.daemons)
                raise ClientError(f"not up within {timeout_s:g} s: {text}\n{logs}")
            time.sleep(0.03)

    def _wait_for_stopped(self) -> None:
        """Wait briefly until daemons that are stopped (SIGSTOP) continue.

        Raises:
            ClientError: some are still stopped.
        """
        deadline = time.monotonic() + _STOPPED_WAIT_S
        while found := {each.name: pid for each in self.daemons if (pid := each.stopped_pid())}:
            if time.monotonic() >= deadline:
                who = ", ".join(f"{name} (process {pid})" for name, pid in found.items())
                state, them = ("is", "it") if len(found) == 1 else ("are", "them")
                pids = " ".join(map(str, found.values()))
                raise ClientError(
                    f"{who} {state} stopped; `kill -CONT {pids}` lets {them} go on, "
                    f"`pliant down` ends {them}"
                )
            time.sleep(0.03)

    def remove_surplus(self) -> list[str]:
        """Remove nodes from the server's list that an earlier, larger cluster had.

        Returns:
            A message for each node that could not be removed.
        """
        own, kept = self.spec.node_names, []
        try:
            with Connection(self.run, timeout_s=5) as link:
                for node in link.request("nodes")["nodes"]:
                    name, here = node["name"], node.get("connected", node["state"] == "UP")
                    if here or name in own or not self._may_remove(name):
                        continue
                    try:
                        link.request("remove", node=name)
                    except RequestError as error:
                        kept.append(str(error))
        except (NoServerError, RequestError) as error:
            kept.append(str(error))
        return kept

    def _may_remove(self, node: str) -> bool:
        """Return whether `pliant up` may remove a node: only if it could have given the name."""
        return _OWN_NAME.fullmatch(node) is not None

    def registered(self) -> set[str] | None:
        """Return the names of the nodes that have registered; None if no server answers.

        This also resumes nodes that an earlier `pliant down` has drained.
        """
        try:
            with Connection(self.run, timeout_s=5) as link:
                nodes = link.request("nodes")["nodes"]
                for node in nodes:
                    if node.get("reason") == DOWN_REASON and str(node["state"]).upper() != "UP":
                        link.request("resume", node=node["name"])
        except (NoServerError, RequestError):
            return None
        # A node whose controller was killed a moment ago is still UP, but not connected.
        return {n["name"] for n in nodes if n["state"] in _REPORTED and n.get("connected", True)}

    def describe(self) -> str:
        """Return how many nodes and processors the cluster has, as text."""
        spec = self.spec
        spares = f" and {plural(spec.spares, 'spare node')}" if spec.spares else ""
        return (
            f"{plural(spec.nodes, 'node')} with {plural(spec.slots, 'processor')} "
            f"{'each' if spec.nodes > 1 else 'in all'}{spares}"
        )

    def end_reason(self) -> str:
        """Return why the cluster has ended as planned; an empty text if it has not.

        For example, the allocation of Slurm in which it ran has ended.
        """
        return ""

    def lost_nodes_reason(self) -> str:
        """Return why all nodes are lost and cannot come back; an empty text if this is not so.

        It is always empty for nodes on this machine.
        """
        return ""

    # -- down

    def has_other_hosts(self) -> bool:
        """Return whether the cluster may have processes on other hosts."""
        return False

    def before_down(self, number: int) -> None:
        """Do what must be done before the cluster is taken down; here, this is nothing.

        `pliant up` calls this when it got the signal ``number``.
        """

    def stop_nodes(self, report: Report, *, keep_jobs: bool) -> list[str]:
        """End nodes that are not on this machine; return a text for each failure.

        Args:
            report: called with a text that says what is being done.
            keep_jobs: whether the jobs on these nodes keep running.
        """
        return []
