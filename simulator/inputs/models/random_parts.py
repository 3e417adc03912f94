"""Random parts of the jobs of a workload, each with a value."""

from collections.abc import Iterable
from random import Random
from typing import TypeVar

T = TypeVar("T")


def choose_parts(jobs: int, parts: Iterable[tuple[float, T]], rng: Random) -> dict[int, T]:
    """Choose jobs at random.

    Args:
        jobs: the number of jobs.
        parts: percent of the jobs, and the value that they get.
        rng: a source of random numbers.

    Returns:
        The value of each chosen job, by its place in the workload. No job is chosen twice.
    """
    places = list(range(jobs))
    rng.shuffle(places)
    chosen: dict[int, T] = {}
    for percent, value in parts:
        number = min(round(jobs * percent / 100), len(places))
        chosen |= {places.pop(): value for _ in range(number)}
    return chosen
