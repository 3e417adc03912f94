"""Read and check requests for steps and commands, and copy their values into `Step` objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pliant.core.values.sizes import Sizes, SizesError, parse_sizes
from pliant.nodectl.host.shared_memory import node_of
from pliant.nodectl.shim.non_pmi_mpi import library_without_pmi
from pliant.nodectl.shim.steps.local_ranks import COMMAND
from pliant.nodectl.shim.steps.step import Step
from pliant.nodectl.world_folder import MALLEABLE_STEP, StartRequest, WorldFolder
from pliant.protos.mpich_variables_for_joined_worlds import JOINED_WORLDS

#: Variables of the script that its steps do not get.
_NOT_INHERITED = ("PLIANT_STEP_SOCKET", "PLIANT_HOST_FILE")

#: Variables of a malleable step that replace those of the script. A step takes no checkpoints.
_MALLEABLE = {
    "PLIANT_ROLE": "start",
    "PLIANT_RESIZE": "0",
    "PLIANT_EPOCH": "0",
    "PLIANT_CHECKPOINT": "",
    # Otherwise a leaving rank would wait in MPI_Finalize for the ranks that stay.
    "MPIR_CVAR_NO_COLLECTIVE_FINALIZE": "1",
}

#: Longest arguments and environment of a step together; other nodes get them in one message.
_MAX_PROGRAM = 1 << 19

#: Commands that may run on a node at once. Each needs descriptors of its shim, which end at 1024.
MAX_COMMANDS = 64


class StepRequests:
    """Reads the requests of a script's processes to start programs (steps) or shell commands."""

    def __init__(self, spool: WorldFolder, request: StartRequest, processors: int) -> None:
        """Prepare to read requests.

        Args:
            spool: the folder of the script's world.
            request: the request to start that world.
            processors: the number of processors of the job.
        """
        self._spool, self._request, self._count = spool, request, processors

    def read_run(self, step: Step, sent: dict[str, Any]) -> str:
        """Set up a step from a request to run a program on processors of the job.

        Returns:
            Why the request is refused; empty if it is accepted.
        """
        ours, most = self._request, self._count
        argv = [str(word) for word in sent["argv"]]
        size = int(sent["size"]) or most
        if not argv or len(step.stdio) != 3:
            return "the request is incomplete"
        if size > most:
            return f"-n {size} is more than the {most} processors of job {ours.job}"
        sizes = str(sent.get("sizes") or "")
        kind = MALLEABLE_STEP if sizes else "mpi"
        if reason := self._set_program(step, kind, argv, sent):
            return reason
        step.sizes = Sizes((size,))
        step.request.environment["PLIANT_STEP"] = str(step.number)
        if sizes:
            try:
                common = parse_sizes(sizes).up_to(most)
            except SizesError as error:
                return f"--size: {error}"
            if common is None:
                return f"--size {sizes} needs more than the {most} processors of job {ours.job}"
            step.sizes = common
            environment = step.request.environment
            step.request.environment = {**JOINED_WORLDS, **environment, **_MALLEABLE}
        if step.sizes.max > 1 and (library := library_without_pmi(step.request)) is not None:
            return f"program {argv[0]} is linked with {library}: start it with its own mpiexec"
        return ""

    def read_launch(self, step: Step, sent: dict[str, Any], running: Iterable[Step]) -> str:
        """Set up a step from a request to run a shell command on one node.

        Args:
            step: the step, which uses no processor of the job.
            sent: the request.
            running: the running steps; too many commands on one node are refused.

        Returns:
            Why the request is refused; empty if it is accepted.
        """
        hosts = [str(host) for host in sent["hosts"]]
        addresses = self.addresses()
        node = next((addresses[host] for host in hosts if host in addresses), None)
        if len(step.stdio) != 3 or not hosts:
            return "the request is incomplete"
        if node is None:
            known = ", ".join(addresses) or "unknown, because several of them have one address"
            return f"job {self._request.job} has no host {hosts[0]}; its hosts are {known}"
        step.places = [leader(self._request, node)]
        alike = [s for s in running if s.request.type == COMMAND]
        if sum(other.places == step.places for other in alike) >= MAX_COMMANDS:
            return f"{MAX_COMMANDS} commands run on {hosts[0]} already; wait until one has ended"
        argv = ["/bin/sh", "-c", str(sent["command"])]
        return self._set_program(step, COMMAND, argv, sent)

    def _set_program(self, step: Step, kind: str, argv: list[str], sent: dict[str, Any]) -> str:
        """Copy program, environment and directory of a client's request into a step.

        Returns:
            Why the request is refused; empty if it is accepted.
        """
        environment = {str(name): str(value) for name, value in sent["env"].items()}
        for name in _NOT_INHERITED:
            environment.pop(name, None)
        length = sum(map(len, [*argv, *environment, *environment.values()]))
        if length > _MAX_PROGRAM:
            return f"arguments and environment have {length} bytes, the limit is {_MAX_PROGRAM}"
        step.request = replace(
            self._request,
            world=f"{self._request.world}.s{step.number}",
            type=kind,
            argv=argv,
            environment=environment,
            directory=str(sent["cwd"]),
            umask=int(sent["umask"]),
            size=1,
        )
        return ""

    def addresses(self) -> dict[str, int]:
        """Return, by address, the index of each node of the job; empty if two share an address."""
        lines = self._spool.nodes.read_text().split()
        nodes = {node_of(self._request.mapping, rank) for rank in range(self._count)}
        if len(lines) != len(nodes):
            return {}
        return {line.rpartition(":")[0]: node for node, line in enumerate(lines)}


def leader(world: StartRequest, node: int) -> int:
    """Return the lowest of the ranks that a world (one ``MPI_COMM_WORLD``) has on a node.

    Packets to the shim on that node use this rank as their address.

    Args:
        world: the request to start the world.
        node: the index of the node among the nodes of the world.
    """
    return next(rank for rank in range(world.size) if node_of(world.mapping, rank) == node)
