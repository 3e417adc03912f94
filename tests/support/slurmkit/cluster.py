"""Start and end the daemons of Slurm and munge, with files and ports of their own; needs root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil

from testkit.waiting import wait_until

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")
_CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
KillWait=30
SchedulerParameters=batch_sched_delay=0
PartitionName=all Nodes=n[1-{nodes}] Default=YES MaxTime=INFINITE State=UP
"""
_NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus}\n"


def why_missing() -> str:
    """Return why there can be no Slurm for tests here; empty if there can be one."""
    for program in _PROGRAMS:
        if shutil.which(program, path=_path()) is None:
            return f"{program} is not installed (Debian: slurm-wlm, munge)"
    return "" if os.geteuid() == 0 else "only root can start the daemons of Slurm"


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


class Slurm:
    """A controller and some nodes."""

    def __init__(self, folder: Path, proctrack: str, nodes: int = 2, cpus: int = 4) -> None:
        """Prepare the configuration.

        Args:
            folder: of all files; its path must be short.
            proctrack: ``pgid``, which signals the first process of a task and its group, or
                ``linuxproc``, which signals all descendants.
            nodes: how many, named n1, n2, ...
            cpus: processors of each.
        """
        self.folder = folder
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        for name in ("state", *(f"spool-{node}" for node in self.nodes)):
            (folder / name).mkdir(parents=True)
        self.env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}
        host = socket.gethostname().partition(".")[0]
        port, *ports = _free_ports(nodes + 1)
        config = _CONFIG.format(
            host=host, folder=folder, port=port, proctrack=proctrack, nodes=nodes
        )
        for name, own in zip(self.nodes, ports, strict=True):
            config += _NODE.format(name=name, host=host, port=own, cpus=cpus)
        (folder / "slurm.conf").write_text(config)
        self._daemons: list[subprocess.Popen[bytes]] = []

    def up(self) -> None:
        """Start the daemons, and wait until both nodes are idle."""
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munge.pid"}
        files |= {"log-file": "munge.log", "seed-file": "munge.seed"}
        words = [f"--{option}={self.folder / name}" for option, name in files.items()]
        self._start("munged", "--foreground", "--force", *words)
        wait_until((self.folder / "munge.sock").exists, what="munged")
        self.start_controller()
        for node in self.nodes:
            self._start("slurmd", "-D", "-N", node)
        idle = [str(len(self.nodes)), "idle"]
        wait_until(
            lambda: self.call("sinfo", "-h", "-o", "%D %t").split() == idle,
            timeout=120.0,
            every=0.2,
            what="idle nodes of Slurm",
        )

    def start_controller(self) -> None:
        """Start slurmctld with the state that it has."""
        self._start("slurmctld", "-D")

    def kill_controller(self) -> None:
        """End slurmctld as a crash does."""
        daemon = next(each for each in self._daemons if "slurmctld" in str(each.args))
        daemon.kill()
        daemon.wait()
        self._daemons.remove(daemon)

    def _start(self, *words: str) -> None:
        with open(self.folder / f"{words[0]}.out", "ab") as log:
            self._daemons.append(
                subprocess.Popen(
                    words, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            )

    def call(self, *words: str) -> str:
        """Run a command of Slurm and return its output, also if it fails."""
        done = subprocess.run(
            words, env=self.env, capture_output=True, text=True, check=False, timeout=120
        )
        return done.stdout

    def submit(self, script: Path, *words: str) -> str:
        """Submit a script, and return the number of the job."""
        output = script.with_suffix(".log")
        number = self.call("sbatch", "--parsable", f"--output={output}", *words, str(script))
        assert number.strip(), (self.folder / "slurmctld.out").read_text()[-2000:]
        return number.strip()

    def is_over(self, job: str) -> bool:
        """Return whether a job has ended and its nodes are free."""
        return not self.call("squeue", "-h", "-j", job).strip()

    def down(self) -> None:
        """Cancel what runs, and end the daemons."""
        self.call("scancel", "--user=root")
        deadline = time.monotonic() + 60.0
        while self.call("squeue", "-h").strip() and time.monotonic() < deadline:
            time.sleep(0.2)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(timeout=20)
            daemon.kill()
            daemon.wait()
        for process in psutil.process_iter():  # steps that lost their daemon
            with suppress(psutil.Error, OSError):
                if process.name() == "slurmstepd" and str(self.folder) in str(process.environ()):
                    process.kill()


def _free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
