"""Make a simulation from the snapshot of a server (`pliant.core.state.queue_snapshot`).

Simulated times are seconds since the snapshot. A job that runs continues on its processors with the
work that is left. A job that waits keeps its time of arrival.

Run times are those that users stated: the estimate, or else the time limit, or else an assumed one.
A waiting job with several sizes counts as malleable, because its program has not registered yet.
Resizes and negotiations cost no time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pliant.core.events import NodeRegistered
from pliant.core.values.ids import NodeName
from pliant.core.values.node_needs import needs_from_record
from pliant.core.values.profit_contract import contract_from_record
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.core.values.speedup import Speedup, corrected, parse_speedup
from pliant.simulator.inputs.settings import Settings
from pliant.simulator.inputs.simulation_errors import SettingsError
from pliant.simulator.inputs.workload import SimJob

Row = Mapping[str, Any]

#: The shortest time that a job still runs, in seconds. Overdue jobs are taken to end now.
LEAST_S = 1e-3


@dataclass
class Scenario:
    """The jobs and the machine of a snapshot, and lists of the jobs that had to be left out."""

    jobs: list[SimJob] = field(default_factory=list)
    #: The processors of the jobs that run, in rank order, by job.
    running: dict[int, tuple[int, ...]] = field(default_factory=dict)
    nodes: tuple[NodeRegistered, ...] = ()
    #: Jobs whose run time was assumed.
    assumed: list[int] = field(default_factory=list)
    #: Jobs that are wider than the nodes that can be used.
    too_wide: list[int] = field(default_factory=list)
    #: Jobs that run on nodes that take no new work.
    on_other_nodes: list[int] = field(default_factory=list)

    def settings(self, strategy: str, options: Mapping[str, object]) -> Settings:
        """Return the settings of a simulation of these jobs under a strategy."""
        return Settings(
            strategy=strategy,
            options=options,
            registered=self.nodes,
            begin=0.0,
            running=self.running,
            keep_spans=True,
        )


def read_snapshot(snapshot: Row, assume_s: float) -> Scenario:
    """Return the jobs and the machine of a snapshot.

    Args:
        snapshot: the answer of the server to the request ``snapshot``.
        assume_s: how long a job runs that states neither an estimate nor a limit, in seconds, at
            its preferred or smallest size.

    Raises:
        SettingsError: no node can be used.
    """
    nodes, places = _nodes(snapshot["nodes"])
    if not nodes:
        raise SettingsError("no node of the cluster can get work now: there is nothing to simulate")
    found = Scenario(nodes=nodes)
    for row in snapshot["jobs"]:
        ranks = [places.get(processor, -1) for processor in row["ranks"]]
        if min(ranks, default=0) < 0:
            found.on_other_nodes.append(row["id"])
            continue
        sizes = _sizes(row, len(places))
        if sizes is None:
            found.too_wide.append(row["id"])
            continue
        if row["estimate_s"] is None and row["limit_s"] is None:
            found.assumed.append(row["id"])
        if ranks:
            found.running[row["id"]] = tuple(ranks)
        found.jobs.append(_job(row, sizes, snapshot["now"], assume_s))
    return found


def _nodes(rows: Sequence[Row]) -> tuple[tuple[NodeRegistered, ...], dict[int, int]]:
    """Return the nodes, and the simulated number of each processor by its number at the server."""
    nodes: list[NodeRegistered] = []
    places: dict[int, int] = {}
    for row in rows:
        for processor in range(row["first"], row["first"] + row["slots"]):
            places[processor] = len(places)
        nodes.append(
            NodeRegistered(
                NodeName(row["name"]),
                row["slots"],
                row["cluster"],
                memory_bytes=row["memory_bytes"],
                gres=tuple(sorted(row["gres"].items())),
                properties=tuple(row["properties"]),
            )
        )
    return tuple(nodes), places


def _sizes(row: Row, processors: int) -> Sizes | None:
    """Return the sizes that a job can have on the usable nodes; None if it is too wide for them."""
    if row["ranks"] and not row["malleable"]:
        return Sizes((len(row["ranks"]),))
    return parse_sizes(row["sizes"], row["prefer"]).up_to(processors)


def _job(row: Row, sizes: Sizes, now: float, assume_s: float) -> SimJob:
    measured = {int(size): seconds for size, seconds in row["measured"].items()}
    speedup = corrected(parse_speedup(row["speedup"]), measured)
    left_s = _seconds_left(row, speedup, now, assume_s)
    return SimJob(
        id=row["id"],
        submit=row["arrival"] - now,
        work=left_s * speedup(row["requested"]),
        sizes=sizes,
        requested=row["requested"],
        estimate_s=None if row["estimate_s"] is None else left_s,
        speedup=speedup,
        contract=contract_from_record(row["contract"]) if row["contract"] else None,
        malleable=not sizes.fixed,
        user=row["user"],
        account=row["account"],
        priority=row["priority"],
        needs=needs_from_record(row["node_needs"]),
    )


def _seconds_left(row: Row, speedup: Speedup, now: float, assume_s: float) -> float:
    """Return how many more seconds a job would run at the size that it requested.

    Args:
        row: the job in the server's snapshot.
        speedup: its speedup.
        now: the time of the snapshot.
        assume_s: the total run time of a job that states neither an estimate nor a limit.
    """
    estimate_s, limit_s = row["estimate_s"], row["limit_s"]
    total_s: float = next((s for s in (estimate_s, limit_s) if s is not None), assume_s)
    if not row["ranks"]:
        return max(LEAST_S, total_s)
    size, requested = len(row["ranks"]), speedup(row["requested"])
    ran_s: float = max(0.0, now - row["start"])
    # The work done is not known of jobs of others.
    done = row["done"] if row["done"] is not None else ran_s * speedup(size)
    left_s = max(LEAST_S, total_s - done / requested)
    if limit_s is None:
        return left_s
    # A time limit counts by the clock, at any size.
    to_limit_s: float = max(LEAST_S, limit_s - ran_s) * speedup(size) / requested
    return min(left_s, to_limit_s)
