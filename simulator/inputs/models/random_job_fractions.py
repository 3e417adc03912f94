"""Random fractions of a workload's jobs, each of which gets a value, as in ``10:5,20:-1``."""

import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from random import Random
from typing import TypeVar

from pliant.simulator.inputs.simulation_errors import SettingsError

T = TypeVar("T")

_PERCENT = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


def parse_parts(
    text: str, read: Callable[[str], T | None], *, what: str, form: str, example: str
) -> list[tuple[float, T]]:
    """Parse an option of the form ``PERCENT:VALUE,...``.

    Args:
        text: the user's text.
        read: returns the value that a text stands for, or None if it is not of the right form.
        what: a name for the values in messages, such as ``priorities``.
        form: the form of a value, for messages.
        example: a valid text, for messages.

    Returns:
        The percentage of the jobs and the value of each part.

    Raises:
        SettingsError: the text is not valid, or the percentages add up to more than 100.
    """
    parts: list[tuple[float, T]] = []
    total = Fraction(0)  # floats of 0.2, 83.9 and 15.9 add up to more than 100
    for part in map(str.strip, text.split(",")):
        percent, _, written = part.partition(":")
        value = read(written) if _PERCENT.fullmatch(percent) else None
        if value is None:
            raise SettingsError(
                f"{what} {text!r}: {part!r} is not of the form PERCENT:{form}; write "
                f"PERCENT:{form},..., as in {example}"
            )
        parts.append((float(percent), value))
        total += Fraction(percent)
    if total > 100:
        raise SettingsError(
            f"{what} {text!r}: the parts are {float(total):g} percent together, more than 100"
        )
    return parts


def choose_parts(jobs: int, parts: Iterable[tuple[float, T]], rng: Random) -> dict[int, T]:
    """Choose jobs at random.

    Args:
        jobs: the number of jobs.
        parts: percent of the jobs, and the value that they get.
        rng: a source of random numbers.

    Returns:
        The value of each chosen job, by its index in the workload. No job is chosen twice.
    """
    places = list(range(jobs))
    rng.shuffle(places)
    chosen: dict[int, T] = {}
    for percent, value in parts:
        number = min(round(jobs * percent / 100), len(places))
        chosen |= {places.pop(): value for _ in range(number)}
    return chosen
