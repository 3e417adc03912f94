"""Models that decide how simulated applications answer offers of another size.

A model receives the present size of a job, the offered size, and the job's sizes. It returns the
size to which the job agrees: the offered one (accept), the present one (reject), or another one in
the same direction (a counter-offer). Models are deterministic except for the random generator that
they are given.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from pliant.core.model.negotiation import Template, Verb
from pliant.core.values.sizes import Sizes
from pliant.simulator.inputs.simulation_errors import SettingsError


class AnswerModel(Protocol):
    """Decides how a job answers an offer."""

    def __call__(self, now: int, offered: int, sizes: Sizes, rng: Random) -> int:
        """Return the size to which the job agrees; ``now`` if it refuses."""


@dataclass(frozen=True, slots=True)
class Always:
    """The application that accepts every offer."""

    def __call__(self, now: int, offered: int, sizes: Sizes, rng: Random) -> int:
        """Return the offered size, which means that the application accepts."""
        return offered


@dataclass(frozen=True, slots=True)
class Bounds:
    """Accepts every allowed size; otherwise proposes the allowed size nearest to the offer."""

    def __call__(self, now: int, offered: int, sizes: Sizes, rng: Random) -> int:
        """Return the offered size if ``sizes`` has it, otherwise the nearest one towards ``now``.

        ``now`` is the present size. It is returned if no other size of ``sizes`` lies between.
        """
        if offered in sizes:
            return offered
        if offered > now:
            return max(now, sizes.largest_at_most(offered))
        above = sizes.smallest_above(offered)
        return above if 0 < above < now else now


@dataclass(frozen=True, slots=True)
class PowerOfTwo:
    """The application that runs only on powers of two (FT and others; Ghafoor 3.1.1, KOALA 6.1).

    If the size after an offered growth is not a power of two, the application grows to the next
    lower one. If the size after a shrink is not, it shrinks to the next lower one if its minimum
    allows that, otherwise to the next higher one. If that is not possible, it refuses.
    """

    def __call__(self, now: int, offered: int, sizes: Sizes, rng: Random) -> int:
        """Return a power of two near the offered size, or the present size."""
        below = 1 << offered.bit_length() - 1
        if offered > now:
            return below if below > now and below in sizes else now
        if below in sizes:
            return below
        above = 2 * below
        return above if above < now and above in sizes else now


@dataclass(frozen=True, slots=True)
class Reluctant:
    """Accepts every growth and refuses every shrink."""

    def __call__(self, now: int, offered: int, sizes: Sizes, rng: Random) -> int:
        """Return the larger one of the present size, ``now``, and the offered size."""
        return max(now, offered)


@dataclass(frozen=True, slots=True)
class Countering:
    """Proposes at most half of the offered change, to an allowed size; accepts if there is none."""

    def __call__(self, now: int, offered: int, sizes: Sizes, rng: Random) -> int:
        """Return an allowed size at most half-way from the present to the offered size.

        If there is none, return the offered size.
        """
        if offered > now:
            middle = sizes.largest_at_most(now + (offered - now) // 2)
            return middle if middle > now else offered
        middle = sizes.smallest_above(now - (now - offered) // 2 - 1)
        return middle if offered < middle < now else offered


@dataclass(frozen=True, slots=True)
class RandomAnswers:
    """Agrees with a probability (Ghafoor 4.2.5), to the whole change or to a random part of it."""

    success: float
    partial: bool = False

    def __call__(self, now: int, offered: int, sizes: Sizes, rng: Random) -> int:
        """Return the offered size, a random size on the way to it, or the present size ``now``.

        The present size means that the application refuses.
        """
        if rng.random() >= self.success:
            return now
        if not self.partial:
            return offered
        amount = rng.randint(0, abs(offered - now))
        wanted = now + amount if offered > now else now - amount
        return Bounds()(now, wanted, sizes, rng) if amount else now


_MODELS: Mapping[str, Callable[[], AnswerModel]] = {
    "always": Always,
    "bounds": Bounds,
    "pow2": PowerOfTwo,
    "reluctant": Reluctant,
    "countering": Countering,
}
_FORMS = (*_MODELS, "random:P", "random:P:partial")


def parse_answers(text: str) -> AnswerModel:
    """Return the answer model that a text names.

    It is one of ``always``, ``bounds``, ``pow2``, ``reluctant``, ``countering``, ``random:P`` and
    ``random:P:partial`` (P: the probability that the job agrees).

    Raises:
        SettingsError: the name is not known; the message lists the known names.
    """
    make = _MODELS.get(text)
    if make is not None:
        return make()
    name, _, rest = text.partition(":")
    probability, _, amount = rest.partition(":")
    if name == "random" and amount in ("", "full", "partial"):
        try:
            success = float(probability)
        except ValueError:
            success = math.nan
        if 0 <= success <= 1:
            return RandomAnswers(success, amount == "partial")
    raise SettingsError(f"answers {text!r}: write one of {', '.join(_FORMS)} (0 <= P <= 1)")


def agreed_size(model: AnswerModel, template: Template, now: int, sizes: Sizes, rng: Random) -> int:
    """Return the size to which a job agrees when it gets an offer.

    A model ``countering`` accepts every final offer, which does not allow a counter-offer.

    Args:
        model: the model of the job's answers.
        template: the offer.
        now: the present size of the job.
        sizes: the sizes that the job allows.
        rng: the random generator for models that need one.
    """
    offered = int(template.items[0].sizes)
    if template.verb is Verb.FINAL and isinstance(model, Countering):
        return offered
    return model(now, offered, sizes, rng)


def answer(template: Template, now: int, agreed: int) -> Template:
    """Return the answer of a job on ``now`` processors: accept, reject, or a counter-offer.

    Args:
        template: the offer.
        now: the present size of the job.
        agreed: the size to which the job agrees. If it is the offered one, the job accepts; if it
            is ``now``, the job rejects. A final offer is rejected instead of countered.
    """
    item, number = template.items[0], template.negotiation
    job, epoch = template.job, template.epoch
    if agreed == int(item.sizes):
        return Template(number, job, epoch, Verb.ACCEPT, template.items, template.round)
    if agreed == now or template.verb is Verb.FINAL:
        return Template(number, job, epoch, Verb.REJECT, template.items, template.round, "not now")
    counter = replace(item, quantity=abs(agreed - now), sizes=str(agreed), valid_until=0.0)
    return Template(number, job, epoch, Verb.COUNTER, (counter,), template.round + 1)
