"""A cluster on this machine: which daemons it has, finding them again, bringing them up."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pliant.client.cluster import process_table
from pliant.client.cluster.cluster_spec import Shape, remembered
from pliant.client.cluster.daemons import Daemon, describe_code, state_of
from pliant.client.connection import Connection
from pliant.client.errors import ClientError, NoServerError, RequestError, UsageError
from pliant.client.paths import SOCKET, check_directories
from pliant.core.support.plural import plural

#: How the daemons are started; node controllers get their name and slots with it.
SERVER = (sys.executable, "-m", "pliant.server")
CONTROLLER = (sys.executable, "-m", "pliant.nodectl")

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
#: A daemon that stands still (SIGSTOP) may go on within this time.
_STOPPED_S = 1.0
#: Nodes that `down` has drained so that no job starts while it cancels are resumed by `up`.
DOWN_REASON = "pliant down"
#: How the nodes of a cluster on this machine are called.
_OWN_NAME = re.compile(r"[ns][1-9][0-9]*")
#: What a node has that has reported, also one that an operator keeps work off.
_REPORTED = {"UP", "SPARE", "DRAINING", "DRAINED"}
#: Where controllers read the server's address, in the run directory.
ADDRESS = "server.address"

#: Launchers and shims: a shim outlives its controller with its job.
_KEEPER = "pliant.nodectl.launcher"
#: What the daemons run, see `procs.program`.
_SERVER, _CONTROLLER = "pliant.server", "pliant.nodectl"
#: The files in the state directory that daemons keep open.
_LOCKS = {"server.lock", "lock"}
#: What a cluster that is started inside a job must not take for its own.
_OF_A_JOB = {"PLIANT_JOB", "PLIANT_TOKEN_FILE"}

Report = Callable[[str], None]


class LocalCluster:
    """The daemons that belong to one state directory."""

    def __init__(self, state: str, run: str, shape: Shape | None = None) -> None:
        """Name its directories; without a shape it has the one that is kept there."""
        self.state, self.run = state, run
        self.shape = shape or remembered(state) or Shape()
        self.daemons: list[Daemon] = []
        self._build()

    # -- what it is made of

    @property
    def _owner(self) -> str:
        """Where the run directory says whose daemons run in it."""
        return os.path.join(self.run, "cluster.state-dir")

    def check_owner(self) -> None:
        """Refuse to touch the daemons of another state directory.

        Raises:
            ClientError: this run directory is that of another cluster, which is up, or this
                cluster is up with another run directory.
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
        for daemon in self.everybody():
            run = process_table.environment(daemon.running()).get("PLIANT_RUN_DIR") or self.run
            if os.path.realpath(run) != os.path.realpath(self.run):
                raise ClientError(
                    f"the cluster in {self.state} runs with another run directory: name it with "
                    f"PLIANT_RUN_DIR={run}"
                )

    def disown(self) -> None:
        """Leave the run directory to whoever comes next."""
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._owner)

    def recall(self) -> None:
        """Have the shape that its state directory keeps by now."""
        self.shape = remembered(self.state) or Shape()
        self._build()

    def choose(self, shape: Shape) -> None:
        """Take another shape; it is to be kept when it has come up.

        Raises:
            ClientError: daemons of the shape it had are running, or have lost what they keep here;
                or another account could change its directories.
        """
        if process_table.find(self._bereft):
            raise ClientError(
                f"state directory: {self.state}: what the cluster kept there was removed or "
                "moved while it ran; end it with `pliant down`, then bring it up anew"
            )
        if shape != self.shape and self.running():
            raise ClientError(
                f"a cluster of {plural(self.shape.nodes, 'node')} with "
                f"{plural(self.shape.slots, 'slot')} each runs in {self.state}; to change it, take "
                "it down first (`pliant down`), then bring it up anew"
            )
        self.shape = shape
        for directory in (self.state, self.run):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        check_directories(self.state, self.run)
        with open(self._owner, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(os.path.realpath(self.state))
        self._build()

    def _build(self) -> None:
        self.daemons = [self._server(), *map(self._controller, self.shape.names)]

    def everybody(self) -> list[Daemon]:
        """Return its daemons, and those of nodes that only its state directory knows of."""
        known = {daemon.name for daemon in self.daemons}
        folders = sorted(os.listdir(self.state)) if os.path.isdir(self.state) else []
        more = [name for name in folders if name.startswith("node-") and name not in known]
        return [*self.daemons, *(self._controller(name.removeprefix("node-")) for name in more)]

    def _server(self) -> Daemon:
        command = [*SERVER, *self._server_options(self.shape)]
        log = os.path.join(self.state, "server.log")
        lock = os.path.join(self.state, "server.lock")
        return Daemon("server", command, _SERVER, "", self._pid_file("server"), log, lock)

    def _server_options(self, shape: Shape) -> list[str]:
        """Return what the server of a cluster of this shape is told on its command line."""
        options = []
        if shape.config:
            # A file may be meant for more than one cluster: the folders are those of this one.
            options += ["--config", shape.config, "--state-dir", self.state, "--run-dir", self.run]
        if shape.strategy:
            options += ["--strategy", shape.strategy]
        for option in shape.strategy_options:
            options += ["--strategy-option", option]
        return options

    def check(self, shape: Shape) -> None:
        """Have the server look at what it would be told, before anything is kept or started.

        Raises:
            UsageError: the server does not take its configuration or options; its own words.
            ClientError: it would not start for another reason; its own words.
        """
        options = self._server_options(shape)
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
        command = [*CONTROLLER, "--name", name, "--slots", str(self.shape.slots)]
        command += ["--address-file", os.path.join(self.run, ADDRESS)]
        if self.shape.transport:
            command += ["--transport", self.shape.transport]
        if name in self.shape.spare_names:
            command.append("--spare")
        if self.shape.most_processes:
            command += ["--most-processes", str(self.shape.most_processes)]
        log, lock = self.node_file(name, "nodectl.log"), self.node_file(name, "lock")
        pid_file = self._pid_file(f"node-{name}")
        return Daemon(f"node-{name}", command, _CONTROLLER, name, pid_file, log, lock)

    def node_file(self, node: str, file: str) -> str:
        """Return the path of a file that a node keeps."""
        return os.path.join(self.state, f"node-{node}", file)

    def _pid_file(self, name: str) -> str:
        return os.path.join(self.run, f"{name}.pid")

    def environment(self) -> dict[str, str]:
        """Return the environment of the daemons."""
        own = {"PLIANT_STATE_DIR": self.state, "PLIANT_RUN_DIR": self.run}
        inherited = {name: os.environ[name] for name in os.environ if name not in _OF_A_JOB}
        return {**inherited, **own}

    def running(self) -> list[Daemon]:
        """Return the daemons that run."""
        return [daemon for daemon in self.everybody() if daemon.running()]

    def owns(self, pid: int) -> bool:
        """Return whether a process is a daemon of this cluster or works for one of its jobs."""
        return self.works(pid) or self.keeps_jobs(pid) or self.leads(pid)

    def leads(self, pid: int) -> bool:
        """Return whether a process is its server or one of its controllers."""
        return process_table.program(pid) in {_SERVER, _CONTROLLER} and self._is_of(pid)

    def _bereft(self, pid: int) -> bool:
        """Return whether a process is one of its daemons whose lock was removed or moved."""
        locks = f"{os.path.realpath(self.state)}/"
        return self.leads(pid) and any(
            path.endswith(" (deleted)") or not path.startswith(locks)
            for path in process_table.files(pid)
            if os.path.basename(path.removesuffix(" (deleted)")) in _LOCKS
        )

    def keeps_jobs(self, pid: int) -> bool:
        """Return whether a process starts and reaps those of its jobs."""
        return process_table.program(pid) == _KEEPER and self._is_of(pid)

    def _is_of(self, pid: int) -> bool:
        state = state_of(pid)
        return bool(state) and os.path.realpath(state) == os.path.realpath(self.state)

    def works(self, pid: int) -> bool:
        """Return whether a process works for one of its jobs."""
        env = process_table.environment(pid)
        token = os.path.realpath(env.get("PLIANT_TOKEN_FILE", "/"))
        return "PLIANT_JOB" in env and token.startswith(os.path.realpath(self.state) + "/")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other `up` and `down` of this state directory waiting."""
        os.makedirs(self.state, mode=0o700, exist_ok=True)
        with open(os.path.join(self.state, "cluster.lock"), "w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # -- up

    def start_missing(self) -> list[Daemon]:
        """Start the daemons that do not run and return them."""
        server = self.daemons[0]
        if server.running() and not self._can_be_asked():
            # Somebody removed its run directory. Jobs go on without it, and the next one has them.
            server.end(STOP_TIMEOUT_S)
        missing = [daemon for daemon in self.daemons if not daemon.running()]
        env = self.environment()
        for daemon in self.daemons:
            daemon.restore_pid_file()
        for daemon in missing:
            daemon.process = None
            daemon.start(env)
        return missing

    def _can_be_asked(self) -> bool:
        return all(os.path.exists(os.path.join(self.run, name)) for name in (SOCKET, ADDRESS))

    def end_started(self) -> None:
        """End the daemons that this process has started, for not all of them came up."""
        for daemon in reversed(self.daemons):
            if daemon.process is not None:
                daemon.end(5.0)

    def detach(self) -> None:
        """Leave the daemons to themselves."""
        for daemon in self.daemons:
            daemon.detach()

    def wait_up(self, report: Report, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the server has every node; tell how far it is whenever that changes.

        Raises:
            DaemonDiedError: a daemon ended at its start, or meanwhile.
            ClientError: some are stopped, or not up in time.
        """
        deadline, told, nodes = time.monotonic() + timeout_s, "", len(self.shape.names)
        while True:
            for daemon in self.daemons:
                daemon.check()
            self._check_stopped()
            server, up = self._look()
            text = f"server {'up' if server else 'starting'}, {up} of {plural(nodes, 'node')} up"
            if text != told:
                report(text)
                told = text
            if server and up >= nodes:
                return
            if time.monotonic() >= deadline:
                logs = "\n".join(f"{d.name}: {d.log}\n{d.tail(5)}" for d in self.daemons)
                raise ClientError(f"not up within {timeout_s:g} s: {text}\n{logs}")
            time.sleep(0.03)

    def _check_stopped(self) -> None:
        """Wait for daemons that are stopped, a moment.

        Raises:
            ClientError: they stay so.
        """
        deadline = time.monotonic() + _STOPPED_S
        while found := {each.name: pid for each in self.daemons if (pid := each.stopped())}:
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
        """Take nodes that only a larger cluster had off the server's list.

        Returns:
            Why some of them stay.
        """
        own, kept = self.shape.names, []
        try:
            with Connection(self.run, timeout_s=5) as link:
                for node in link.request("nodes")["nodes"]:
                    name, here = node["name"], node.get("connected", node["state"] == "UP")
                    if here or name in own or not _OWN_NAME.fullmatch(name):
                        continue
                    try:
                        link.request("remove", node=name)
                    except RequestError as error:
                        kept.append(str(error))
        except (NoServerError, RequestError) as error:
            kept.append(str(error))
        return kept

    def _look(self) -> tuple[bool, int]:
        """Return whether the server answers, and how many nodes have reported to it."""
        try:
            with Connection(self.run, timeout_s=5) as link:
                nodes = link.request("nodes")["nodes"]
                for node in nodes:
                    if node.get("reason") == DOWN_REASON and str(node["state"]).upper() != "UP":
                        link.request("resume", node=node["name"])
        except (NoServerError, RequestError):
            return False, 0
        # The state alone says UP of a controller that was killed a moment ago.
        here = {n["name"] for n in nodes if n["state"] in _REPORTED and n.get("connected", True)}
        return True, len(here.intersection(self.shape.names))
