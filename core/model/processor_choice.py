"""Placement: deterministic choices of processors, used by strategies and by operators' requests."""

from pliant.core.model.views_and_plans import NodeView
from pliant.core.values.processors import NONE, ProcessorMap, count, from_indices, indices, lowest


def first_fit(free: ProcessorMap, number: int) -> ProcessorMap:
    """Return the ``number`` lowest free processors. At least that many must be free."""
    return lowest(free, number)


def grow(
    ranks: tuple[int, ...], free: ProcessorMap, number: int, nodes: tuple[NodeView, ...]
) -> ProcessorMap:
    """Return ``number`` free processors for a job that grows.

    Processors on the job's own nodes come first, then the lowest ones.
    """
    own = from_indices(ranks)
    near = NONE
    for node in nodes:
        if node.processors & own:
            near |= node.processors & free
    chosen = lowest(near, min(number, count(near)))
    return chosen | lowest(free & ~chosen, number - count(chosen))


def keep_first(ranks: tuple[int, ...], size: int) -> ProcessorMap:
    """Return the processors of the first ``size`` ranks. A shrink gives up the last ranks."""
    return from_indices(ranks[:size])


def after_resize(ranks: tuple[int, ...], target: ProcessorMap) -> tuple[int, ...]:
    """Return the job's processors in rank order after a resize to ``target``.

    Remaining ranks keep their order, and added processors follow ascending.
    """
    survivors = tuple(processor for processor in ranks if target >> processor & 1)
    return survivors + tuple(indices(target & ~from_indices(survivors)))
