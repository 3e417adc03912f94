"""Scenes of talks: malleable jobs that fill a machine, and what is said to and by them."""

from __future__ import annotations

from dataclasses import replace

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.model.negotiation import Item, Template, Verb
from pliant.core.values.negotiation_policy import NegotiationPolicy


def machine(
    strategy: str,
    jobs: dict[int, tuple[str, int]],
    idle: int,
    policy: NegotiationPolicy | None = None,
) -> Rig:
    """Malleable jobs (sizes, present size) that fill a machine but for some processors."""
    slots = sum(size for _, size in jobs.values()) + idle
    rig = Rig({"n1": slots}, "fcfs", policy=policy)
    for number, (sizes, size) in jobs.items():
        rig.submit(number, sizes, prefer=size)
        rig.up(number)
        assert rig.job(number).size == size
    rig.strategy = Rig({}, strategy).strategy
    for number in jobs:
        job = rig.job(number)
        rig.do(events.ApplicationRegistered(job.id, job.run, job.epoch, job.ranks))
    rig.sent.clear()
    return rig


def offers(rig: Rig) -> dict[int, Template]:
    """Take what was said to the applications, by job."""
    return {sent.job: sent.template for sent in rig.take(commands.SendOffer)}


def item(template: Template) -> Item:
    """What a template says of processors."""
    return template.items[0]


def agree(rig: Rig, number: int, template: Template) -> None:
    """Have an application accept."""
    rig.answer(number, Verb.ACCEPT, template)


def counter(rig: Rig, number: int, template: Template, **terms: object) -> None:
    """Have an application counter with other terms."""
    wish = replace(item(template), **terms)  # type: ignore[arg-type]
    rig.answer(number, Verb.COUNTER, replace(template, items=(wish,)))


def two_donors(strategy: str = "easy-min") -> tuple[Rig, dict[int, Template]]:
    """Job 3 needs six processors, of which jobs 1 and 2 are asked to give three each."""
    rig = machine(strategy, {1: ("1-4", 4), 2: ("1-4", 4)}, idle=0)
    rig.submit(3, "6")
    asked = offers(rig)
    assert set(asked) == {1, 2}
    return rig, asked
