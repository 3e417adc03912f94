"""How long the core waits is said once, in the core; the configuration may change all of it."""

from __future__ import annotations

from dataclasses import asdict, fields

from pliant.core.limits import Limits
from pliant.server.config import Config, check_config


def test_the_defaults_are_those_of_the_core() -> None:
    assert Config().limits() == Limits()


def test_every_limit_can_be_configured() -> None:
    changed = Limits(*(float(place) for place, _ in enumerate(fields(Limits), 1)))
    assert check_config(asdict(changed)).limits() == changed
