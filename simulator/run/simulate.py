"""Run one simulation from jobs and settings to a result. ``pliant.simulator`` exports this."""

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from pliant.core.commands import Note
from pliant.core.model.nodes import Node
from pliant.core.state.node_resources import impossible
from pliant.core.state.view_cache import node_view
from pliant.simulator.inputs.settings import Settings
from pliant.simulator.inputs.workload import SimJob, WorkloadError
from pliant.simulator.run.result import Result
from pliant.simulator.run.simulated_nodes import SimulatedNodes
from pliant.simulator.run.simulation_loop import Engine

#: The number of new objects between two garbage collections.
_OBJECTS = 500_000


def simulate(
    jobs: Iterable[SimJob],
    settings: Settings,
    *,
    on_note: Callable[[Note], None] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Result:
    """Run jobs on a simulated machine, with the core of real clusters, and return the result.

    Args:
        jobs: the jobs to submit, in any order, with unique numbers.
        settings: the machine, the strategy, costs and failures.
        on_note: is called with each line of the history when it is written.
        progress: is called from time to time with the number of jobs that have ended and the
            simulated time.

    Raises:
        WorkloadError: two jobs have the same number, or a job does not fit the machine.
        SettingsError: a setting is invalid, or contradicts the jobs or the strategy.
        UnknownStrategyError, OptionError: the strategy or one of its options is not known.
        StrategyFaultError: the strategy raised an error or returned an invalid plan.
        NoProgressError: the strategy plans for ever, or never starts a waiting job.
    """
    ordered = sorted(jobs, key=lambda job: (job.submit, job.id))
    _check(ordered, settings)
    engine = Engine(ordered, settings, on_note)
    if not engine.strategy.spans_clusters:
        _check_clusters(ordered, settings, engine.strategy_name)
    with _rare_collections():
        engine.run(progress)
    metrics = engine.metrics.summary(engine.core.memory)
    if engine.jobs.users is not None:
        metrics |= engine.jobs.users.summary()
    return Result(metrics, engine.jobs.records, engine.jobs.spans)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Within this context, run Python's garbage collector less often.

    A simulation makes no reference cycles.
    """
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _check(jobs: Sequence[SimJob], settings: Settings) -> None:
    seen: set[int] = set()
    for job in jobs:
        if job.id in seen:
            raise WorkloadError(f"job {job.id} occurs twice: each job needs a number of its own")
        seen.add(job.id)
        if job.sizes.min > settings.total:
            raise WorkloadError(
                f"job {job.id} needs {job.sizes.min} processors, the machine has {settings.total}: "
                "simulate a larger one (processors), or leave the job out"
            )
        limit = settings.user_limits.of(job.user).running_processors
        if limit is not None and job.sizes.min > limit:
            raise WorkloadError(
                f"job {job.id} needs {job.sizes.min} processors, and user {job.user or '-'} may "
                f"use {limit}: raise the limit (user_limits), or leave the job out"
            )
        _check_phases(job)
    _check_nodes(jobs, settings)


def _check_nodes(jobs: Sequence[SimJob], settings: Settings) -> None:
    """Check that the nodes can run each job that needs memory, devices or properties."""
    if not any(job.needs for job in jobs):
        return
    first, nodes = 0, []
    for event in SimulatedNodes(settings).registrations:
        node = Node(event.name, first, event.slots, event.cluster, "", event.memory_bytes)
        node.gres, node.properties = dict(event.gres), event.properties
        nodes.append(node_view(node))
        first += event.slots
    for job in jobs:
        if job.needs and (why := impossible(nodes, job.needs, job.sizes.min)):
            raise WorkloadError(f"job {job.id}: {why}: change the nodes, or leave the job out")


def _check_clusters(jobs: Sequence[SimJob], settings: Settings, strategy: str) -> None:
    """Check that each job fits into one cluster, for a strategy that does not span clusters."""
    widest = max((cluster.processors for cluster in settings.clusters), default=settings.total)
    for job in jobs:
        if job.sizes.min > widest:
            raise WorkloadError(
                f"job {job.id} needs {job.sizes.min} processors, the largest cluster has {widest} "
                f"and strategy {strategy} keeps a job within one: name a larger cluster (clusters) "
                "or another strategy, or leave the job out"
            )


def _check_phases(job: SimJob) -> None:
    for phase in job.phases:
        if not (1 <= phase.minimum <= phase.maximum and phase.work >= 0):
            raise WorkloadError(
                f"job {job.id}: {phase} makes no sense: expected work >= 0 and "
                "1 <= minimum <= maximum"
            )
    total = math.fsum(phase.work for phase in job.phases)
    if job.phases and not math.isclose(total, job.work, rel_tol=1e-6, abs_tol=1e-6):
        raise WorkloadError(
            f"job {job.id}: the work of its phases is {total:g}, and its own is {job.work:g}: "
            "they must be the same"
        )
