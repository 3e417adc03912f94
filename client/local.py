"""A cluster on this machine: which daemons it has, bringing them up, taking them down."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from pliant.client import procs
from pliant.client.connection import Connection
from pliant.client.daemons import Daemon, describe_code, wait_until_gone
from pliant.client.errors import ClientError, NoServerError, RequestError
from pliant.client.paths import SOCKET
from pliant.core.words import many

#: How the daemons are started; node controllers get their name and slots with it.
SERVER = (sys.executable, "-m", "pliant.server")
CONTROLLER = (sys.executable, "-m", "pliant.nodectl")

START_TIMEOUT_S = 60.0
_CANCEL_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 10.0
#: Nodes that `down` has drained so that no job starts while it cancels are resumed by `up`.
DOWN_REASON = "pliant down"
#: How the nodes of a cluster on this machine are called.
_OWN_NAME = re.compile(r"n[1-9][0-9]*")
_HOLDS_PROCESSORS = {"STARTING", "RUNNING", "ADAPTING", "COMPLETING"}

#: What a cluster that is started inside a job must not take for its own.
_OF_A_JOB = {"PLIANT_JOB", "PLIANT_TOKEN_FILE"}

Report = Callable[[str], None]


@dataclass(frozen=True)
class Shape:
    """What a cluster is made of; kept in its state directory."""

    nodes: int = 4
    slots: int = 4
    #: Empty: the server's own choice.
    strategy: str = ""
    #: Of the strategy, ``name=value`` each.
    strategy_options: tuple[str, ...] = ()
    #: Empty: the controllers' own choice.
    transport: str = ""
    #: File with the server's configuration; empty: none.
    config: str = ""


def _is_shape(known: object) -> bool:
    """Whether what a file holds is what a shape was kept as."""
    if not isinstance(known, dict):
        return False
    counts = [known.get(name, 1) for name in ("nodes", "slots")]
    texts = [known.get(name, "") for name in ("strategy", "transport", "config")]
    options = known.get("strategy_options", [])
    return (
        all(type(number) is int and number > 0 for number in counts)
        and isinstance(options, list)
        and all(isinstance(text, str) for text in [*texts, *options])
    )


class LocalCluster:
    """The daemons that belong to one state directory."""

    def __init__(self, state: str, run: str) -> None:
        self.state, self.run = state, run
        self.shape = self._remembered() or Shape()
        self.daemons: list[Daemon] = []
        self._build()

    # -- what it is made of

    @property
    def _memory(self) -> str:
        return os.path.join(self.state, "cluster.json")

    def _remembered(self) -> Shape | None:
        try:
            with open(self._memory, encoding="utf-8") as file:
                known = json.load(file)
        except OSError:
            return None
        except ValueError:
            known = None
        if not _is_shape(known):
            raise ClientError(
                f"{self._memory} is damaged: remove it, and say --nodes and --slots once more"
            )
        shape = Shape(**{key: known[key] for key in asdict(Shape()) if key in known})
        return replace(shape, strategy_options=tuple(shape.strategy_options))

    @property
    def _owner(self) -> str:
        """Where the run directory says whose daemons run in it."""
        return os.path.join(self.run, "cluster.state-dir")

    def check_owner(self) -> None:
        """Refuse to touch the daemons of another state directory.

        Raises:
            ClientError: this run directory is that of another cluster, which is up.
        """
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

    def disown(self) -> None:
        """Leave the run directory to whoever comes next."""
        with suppress(FileNotFoundError):
            os.unlink(self._owner)

    def remembered(self) -> bool:
        """Return whether this state directory has had a cluster before."""
        return self._remembered() is not None

    def choose(self, shape: Shape) -> None:
        """Take another shape; it is kept when it has come up: see `remember`.

        Raises:
            ClientError: daemons of the shape it had are running.
        """
        if shape != self.shape and self.running():
            raise ClientError(
                f"a cluster of {many(self.shape.nodes, 'node')} with "
                f"{many(self.shape.slots, 'slot')} each runs in {self.state}; to change it, take "
                "it down first (`pliant down`), then bring it up anew"
            )
        self.shape = shape
        for directory in (self.state, self.run):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        with open(self._owner, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(os.path.realpath(self.state))
        self._build()

    def remember(self) -> None:
        """Keep the shape for the next `pliant up`."""
        draft = f"{self._memory}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(asdict(self.shape), file)
        os.replace(draft, self._memory)

    def _build(self) -> None:
        self.daemons = [self._server(), *map(self._controller, self._names())]

    def _names(self) -> list[str]:
        return [f"n{number}" for number in range(1, self.shape.nodes + 1)]

    def _server(self) -> Daemon:
        command = [*SERVER, *self._server_options(self.shape)]
        log = os.path.join(self.state, "server.log")
        return Daemon("server", command, ["pliant", "server"], self._pid_file("server"), log)

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
            ClientError: it would not start; the server's own words.
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
            raise ClientError(words or f"the server ended with {describe_code(done.returncode)}")

    def _controller(self, name: str) -> Daemon:
        command = [*CONTROLLER, "--name", name, "--slots", str(self.shape.slots)]
        command += ["--address-file", os.path.join(self.run, "server.address")]
        if self.shape.transport:
            command += ["--transport", self.shape.transport]
        log = os.path.join(self.state, f"node-{name}", "nodectl.log")
        marks = ["pliant", "nodectl", f"--name {name} "]
        return Daemon(f"node-{name}", command, marks, self._pid_file(f"node-{name}"), log)

    def _pid_file(self, name: str) -> str:
        return os.path.join(self.run, f"{name}.pid")

    def environment(self) -> dict[str, str]:
        """Return the environment of the daemons."""
        own = {"PLIANT_STATE_DIR": self.state, "PLIANT_RUN_DIR": self.run}
        inherited = {name: os.environ[name] for name in os.environ if name not in _OF_A_JOB}
        return {**inherited, **own}

    def running(self) -> list[Daemon]:
        """Return the daemons that run."""
        return [daemon for daemon in self.daemons if daemon.running()]

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
        missing = [daemon for daemon in self.daemons if not daemon.running()]
        env = self.environment()
        for daemon in missing:
            daemon.process = None
            daemon.start(env)
        return missing

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
            DaemonDiedError: a daemon ended at its start.
            ClientError: some are not up in time.
        """
        deadline, told = time.monotonic() + timeout_s, ""
        while True:
            for daemon in self.daemons:
                daemon.check()
            server, up = self._look()
            nodes = many(self.shape.nodes, "node")
            text = f"server {'up' if server else 'starting'}, {up} of {nodes} up"
            if text != told:
                report(text)
                told = text
            if server and up >= self.shape.nodes:
                return
            if time.monotonic() >= deadline:
                logs = "\n".join(f"{d.name}: {d.log}\n{d.tail(5)}" for d in self.daemons)
                raise ClientError(f"not up within {timeout_s:g} s: {text}\n{logs}")
            time.sleep(0.03)

    def remove_surplus(self) -> list[str]:
        """Take nodes that only a larger cluster had off the server's list.

        Returns:
            Why some of them stay.
        """
        own = self._names()
        kept = []
        try:
            with Connection(self.run, timeout_s=5) as link:
                for node in link.request("nodes")["nodes"]:
                    name, up = node["name"], str(node["state"]).upper() == "UP"
                    if up or name in own or not _OWN_NAME.fullmatch(name):
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
        own = self._names()
        here = ("UP", "DRAINING", "DRAINED")  # what an operator keeps work off has reported, too
        return True, sum(n["name"] in own and str(n["state"]).upper() in here for n in nodes)

    # -- down

    def stop(self, report: Report, *, keep_jobs: bool = False) -> None:
        """Cancel the jobs that run, end the daemons, remove what they leave in the run folder."""
        if not keep_jobs:
            self._cancel_jobs(report)
        server, *controllers = self.daemons
        if server.running():
            report("stopping the server")
            try:
                with Connection(self.run, timeout_s=_STOP_TIMEOUT_S) as link:
                    link.request("stop")
                wait_until_gone([server], _STOP_TIMEOUT_S)
            except (NoServerError, RequestError):
                pass  # it is asked with a signal next
        server.end(_STOP_TIMEOUT_S)
        self._end_controllers(controllers, report)
        for name in (SOCKET, "server.address"):
            try:
                os.unlink(os.path.join(self.run, name))
            except (FileNotFoundError, NotADirectoryError):
                pass  # the server has removed it

    def _end_controllers(self, controllers: list[Daemon], report: Report) -> None:
        running = [pid for daemon in controllers if (pid := daemon.running())]
        if running:
            report(f"stopping {many(len(running), 'node controller')}")
            procs.end(running, _STOP_TIMEOUT_S)
        for daemon in controllers:
            daemon.end(0.0)

    def _cancel_jobs(self, report: Report) -> None:
        """Cancel what runs, with all nodes drained so that nothing takes its place."""
        try:
            with Connection(self.run, timeout_s=5) as link:
                if not _active(link):
                    return
                for node in link.request("nodes")["nodes"]:
                    if str(node["state"]).upper() == "UP":
                        _try(link, "drain", node=node["name"], reason=DOWN_REASON)
                deadline = time.monotonic() + _CANCEL_TIMEOUT_S
                asked: set[int] = set()
                while (active := _active(link)) and time.monotonic() < deadline:
                    if new := [number for number in active if number not in asked]:
                        report(f"cancelling {many(len(new), 'job')}")
                        _try(link, "cancel", ids=new)
                        asked.update(new)
                    time.sleep(0.05)
        except (NoServerError, RequestError):
            return  # no server, no jobs to cancel; their processes are ended with the rest

    def jobs_left(self) -> list[int]:
        """Return the jobs of which processes run, whether there is a server or not."""
        found = (procs.environment(pid) for pid in procs.find(self.owns))
        return sorted({int(env["PLIANT_JOB"]) for env in found if "PLIANT_JOB" in env})

    def sweep(self) -> list[int]:
        """End what still belongs to this cluster, as processes of jobs that nobody could cancel.

        Returns:
            The processes that are there in spite of it.
        """
        return procs.end(procs.find(self.owns), 2.0)

    def owns(self, pid: int) -> bool:
        """Return whether a process is a daemon of this cluster or works for one of its jobs."""
        env = procs.environment(pid)
        if "PLIANT_JOB" in env and env.get("PLIANT_TOKEN_FILE", "").startswith(self.state + "/"):
            return True
        line = " ".join(procs.words(pid))
        daemon = "pliant.nodectl" in line or "pliant.server" in line
        return daemon and env.get("PLIANT_STATE_DIR") == self.state


def _active(link: Connection) -> list[int]:
    jobs: list[dict[str, Any]] = link.request("jobs", ids=None, all=False)["jobs"]
    return [int(job["id"]) for job in jobs if job["state"] in _HOLDS_PROCESSORS]


def _try(link: Connection, op: str, **fields: Any) -> None:
    try:
        link.request(op, **fields)
    except RequestError:
        pass  # what cannot be done politely is done by ending processes
