"""The allocation of Slurm in which this process runs: its nodes, its slots, its end."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.cluster.host_list import Host
from pliant.core.values.node_ranges import parse_node_ranges

#: A busy controller of Slurm answers late.
_QUERY_TIMEOUT_S = 60.0
_REPEATED = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")
#: [DAYS-][HOURS:]MINUTES:SECONDS, as `squeue` prints the time that is left.
_LEFT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


class AllocationError(ClientError):
    """This process is not in an allocation of Slurm, or the allocation cannot be used."""


@dataclass(frozen=True)
class Allocation:
    """The Slurm allocation in which this process runs: its job and its hosts."""

    job: str
    #: A node for each host, in the order of Slurm.
    hosts: tuple[Host, ...]


def read_allocation(env: Mapping[str, str], slots: int | None = None) -> Allocation:
    """Return the allocation that the environment variables of Slurm describe.

    Args:
        env: the environment.
        slots: the number of slots of each node, which is the most processes that jobs may have
            there; None for as many as Slurm allows.

    Raises:
        AllocationError: the variables are missing or wrong, or this process is one of several
            tasks that ``srun`` started.
    """
    job, nodes = env.get("SLURM_JOB_ID", ""), env.get("SLURM_JOB_NODELIST", "")
    if not job or not nodes:
        raise AllocationError(
            "--inside-slurm: this is not inside an allocation of Slurm (SLURM_JOB_ID is not set): "
            "run it in a script of `sbatch`, or in a shell of `salloc`"
        )
    if env.get("SLURM_STEP_NUM_TASKS", "1") != "1":
        raise AllocationError(
            "--inside-slurm: this is one of several tasks of `srun`: run `pliant up` once, without "
            "`srun`, which it calls itself"
        )
    try:
        names = parse_node_ranges(nodes)
        counts = [slots] * len(names) if slots else slots_of_nodes(env)
    except ValueError as error:
        raise AllocationError(f"--inside-slurm: {error}") from None
    if len(counts) != len(names):
        raise AllocationError(
            f"--inside-slurm: Slurm names {len(names)} nodes ({nodes:.100}), and processors of "
            f"{len(counts)}; name the slots of each node with --slots"
        )
    return Allocation(
        job, tuple(Host(name, slots=count) for name, count in zip(names, counts, strict=True))
    )


def slots_of_nodes(env: Mapping[str, str]) -> list[int]:
    """Return how many processes may run on each node.

    This is the number of tasks on the node if the job asked for tasks. Otherwise it is the number
    of processors on the node divided by the processors of each task.

    Raises:
        ValueError: the variables are missing or wrong.
    """
    if env.get("SLURM_NTASKS") or env.get("SLURM_NTASKS_PER_NODE"):
        return parse_repeated("SLURM_TASKS_PER_NODE", env.get("SLURM_TASKS_PER_NODE", ""))
    name = "SLURM_JOB_CPUS_PER_NODE"
    each = env.get("SLURM_CPUS_PER_TASK", "1")
    if not each.isdecimal() or not int(each):
        raise ValueError(f"SLURM_CPUS_PER_TASK={each!r:.40}: expected a number")
    return [max(1, cpus // int(each)) for cpus in parse_repeated(name, env.get(name, ""))]


def parse_repeated(name: str, text: str) -> list[int]:
    """Expand a list with repetitions: ``4(x2),8`` is 4, 4, 8.

    ``name`` is the name of the variable that has the list, for the error.

    Raises:
        ValueError: the text is no such list.
    """
    numbers: list[int] = []
    for item in text.split(","):
        found = _REPEATED.fullmatch(item)
        if found is None or not int(found[1]):
            raise ValueError(f"{name}={text!r:.100}: expected numbers, as in 4(x2),8")
        numbers += [int(found[1])] * int(found[2] or 1)
    return numbers


def parse_time_left(text: str) -> float:
    """Return the remaining seconds in an output of `squeue`; infinity for a job without a limit.

    Raises:
        ValueError: the text is no time.
    """
    word = text.strip()
    if word in {"UNLIMITED", "NOT_SET"}:
        return math.inf
    found = _LEFT.fullmatch(word)
    if found is None:
        raise ValueError(f"{word!r:.60} is no time")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def require_commands() -> None:
    """Check that the commands of Slurm that are needed are in PATH.

    Raises:
        UsageError: one of them is not found.
    """
    for command in ("srun", "squeue", "scontrol"):
        if shutil.which(command) is None:
            raise UsageError(
                f"--inside-slurm: there is no command {command}: load the module of Slurm, or add "
                "its directory to PATH"
            )


def end_of(job: str) -> float | None:
    """Return when the allocation of a job ends, in seconds since the epoch.

    The time may change while the job runs, so the caller asks from time to time.

    Returns:
        Infinity if it has no end; None if Slurm does not say.
    """
    text = _query("squeue", "--noheader", "--jobs", job, "--format", "%L")
    try:
        return time.time() + parse_time_left(text)
    except ValueError:
        return None


def addresses_of(hosts: tuple[Host, ...]) -> list[str]:
    """Return the addresses or names that Slurm has for nodes; empty if Slurm reports none."""
    names = ",".join(host.name for host in hosts)
    text = _query("scontrol", "show", "node", names, "--oneliner")
    return re.findall(r"\bNodeAddr=(\S+)", text)


def _query(*command: str) -> str:
    """Return the output of a command of Slurm; empty if it failed."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("SQUEUE_")}
    try:
        done = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_QUERY_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if not done.returncode else ""
