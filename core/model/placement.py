"""Which processors: small deterministic choices that strategies and operators' requests share."""

from pliant.core.model.scheduling import NodeView
from pliant.core.values.processors import NONE, ProcessorMap, count, from_indices, indices, lowest


def first_fit(free: ProcessorMap, number: int) -> ProcessorMap:
    """The ``number`` lowest free processors (at least that many must be free)."""
    return lowest(free, number)


def grow(
    ranks: tuple[int, ...], free: ProcessorMap, number: int, nodes: tuple[NodeView, ...]
) -> ProcessorMap:
    """``number`` free processors for a job on ``ranks``: its own nodes first, then the lowest."""
    own = from_indices(ranks)
    near = NONE
    for node in nodes:
        if node.processors & own:
            near |= node.processors & free
    chosen = lowest(near, min(number, count(near)))
    return chosen | lowest(free & ~chosen, number - count(chosen))


def keep_first(ranks: tuple[int, ...], size: int) -> ProcessorMap:
    """The processors of the first ``size`` ranks: a shrink gives back the last ones."""
    return from_indices(ranks[:size])


def after_resize(ranks: tuple[int, ...], target: ProcessorMap) -> tuple[int, ...]:
    """The rank order of a new allocation: survivors in their order, then newcomers, ascending."""
    survivors = tuple(processor for processor in ranks if target >> processor & 1)
    return survivors + tuple(indices(target & ~from_indices(survivors)))
