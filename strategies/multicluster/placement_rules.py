"""Place the components of a job: the placement policies of KOALA (4.1).

All rules place all components of a job or none. Components are placed in order of size, the largest
first, and equal ones in the order given. Clusters are taken in order of idle processors, most
first, and equal ones in order of name.

``wf``: worst fit. Each component goes to the cluster with the most idle processors.
``cf``: close to files. Each component goes to the cluster that needs the least time for the
transfer of its input files.
``cm``: cluster minimization. As few clusters as possible hold the components.
``fcm``: flexible cluster minimization. Only the total is fixed. The job is split by the idle
processors of the clusters.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

PlacementRule = Literal["wf", "cf", "cm", "fcm"]

#: Up to this number of clusters and components, ``cm`` tries all sets of clusters. Filling one
#: cluster after the other, without a search, misses some placements that exist.
MAX_SEARCHED = 8

#: The seconds of the file transfers for each component, in each cluster.
TransferTimes = Sequence[Mapping[str, float]]


class Part(NamedTuple):
    """A number of processors of one cluster, for a component of a job."""

    cluster: str
    processors: int


def place_components(
    rule: PlacementRule,
    components: Sequence[int],
    idle: Mapping[str, int],
    transfers: TransferTimes = (),
) -> list[Part] | None:
    """Place all components of a job.

    Args:
        rule: the placement policy.
        components: the number of processors of each component.
        idle: the number of idle processors of each cluster.
        transfers: the seconds of file transfers of each component in each cluster, for ``cf``;
            empty if the job has no files.

    Returns:
        A cluster and a number of processors for each component, in the order of the components.
        With ``fcm``, one such part for each cluster that is used. None if the job cannot be placed.
    """
    if rule == "fcm":
        return _split(sum(components), idle)
    if rule == "cm":
        return _in_fewest_clusters(components, idle)
    return _one_by_one(components, idle, transfers if rule == "cf" else ())


def _one_by_one(
    components: Sequence[int], idle: Mapping[str, int], transfers: TransferTimes
) -> list[Part] | None:
    """Place each component in the cluster with the least transfer time, then most idle processors.

    Return the parts in the order of the components; None if a component fits nowhere.
    """
    left = dict(idle)
    found: dict[int, Part] = {}
    for place in _largest_first(components):
        size = components[place]
        seconds = transfers[place] if transfers else {}
        able = [name for name in left if left[name] >= size]
        if not able:
            return None
        best = min(able, key=lambda name: (seconds.get(name, 0.0), -left[name], name))
        left[best] -= size
        found[place] = Part(best, size)
    return [found[place] for place in range(len(components))]


def _in_fewest_clusters(components: Sequence[int], idle: Mapping[str, int]) -> list[Part] | None:
    order = _largest_first(components)
    ranked = _by_idle(idle)
    for names in _candidates(components, ranked, idle):
        left = [idle[name] for name in names]
        searches = len(ranked) <= MAX_SEARCHED and len(components) <= MAX_SEARCHED
        chosen = _pack([components[place] for place in order], left, searches=searches)
        if chosen is not None:
            homes = dict(zip(order, chosen, strict=True))
            return [Part(names[homes[i]], size) for i, size in enumerate(components)]
    return None


def _candidates(
    components: Sequence[int], ranked: Sequence[str], idle: Mapping[str, int]
) -> Iterator[Sequence[str]]:
    """Yield the sets of clusters to try: smaller ones first, then in the order of ``ranked``."""
    if len(ranked) > MAX_SEARCHED or len(components) > MAX_SEARCHED:
        yield ranked
        return
    total = sum(components)
    for number in range(1, min(len(ranked), len(components)) + 1):
        for names in combinations(ranked, number):
            if sum(idle[name] for name in names) >= total:
                yield names


def _pack(sizes: Sequence[int], left: list[int], *, searches: bool) -> list[int] | None:
    """Return, for each size, the index in ``left`` of the cluster that gets it; None if impossible.

    ``left`` has the idle processors of each cluster. With ``searches`` all ways are tried.
    Otherwise one cluster after the other is filled with what fits.
    """
    if not searches:
        homes: dict[int, int] = {}
        for place in range(len(left)):
            for index, size in enumerate(sizes):
                if index not in homes and size <= left[place]:
                    homes[index] = place
                    left[place] -= size
        return [homes[i] for i in range(len(sizes))] if len(homes) == len(sizes) else None
    failed: set[tuple[int, tuple[int, ...]]] = set()

    def search(index: int) -> list[int] | None:
        if index == len(sizes):
            return []
        state = (index, tuple(sorted(left)))
        if state in failed:
            return None
        for place, room in enumerate(left):
            if room >= sizes[index] and room not in left[:place]:
                left[place] -= sizes[index]
                rest = search(index + 1)
                left[place] += sizes[index]
                if rest is not None:
                    return [place, *rest]
        failed.add(state)
        return None

    return search(0)


def _split(total: int, idle: Mapping[str, int]) -> list[Part] | None:
    """Return the parts of a job, placed on the clusters with the most idle processors first.

    ``total`` is the job's number of processors. None if fewer are idle. No other split uses fewer
    clusters.
    """
    parts = []
    for name in _by_idle(idle):
        taken = min(idle[name], total)
        if taken > 0:
            parts.append(Part(name, taken))
            total -= taken
    return None if total else parts


def _largest_first(components: Sequence[int]) -> list[int]:
    """Return the indices of the components, the largest component first."""
    return sorted(range(len(components)), key=lambda place: -components[place])


def _by_idle(idle: Mapping[str, int]) -> list[str]:
    return sorted(idle, key=lambda name: (-idle[name], name))
