"""How long the core waits is said once, in the core; the configuration may change all of it."""

from __future__ import annotations

from dataclasses import asdict

from pliant.core.values.timeouts import Timeouts
from pliant.server.config import Config, check_config


def test_the_defaults_are_those_of_the_core() -> None:
    assert Config().limits() == Timeouts()


def test_every_limit_can_be_configured() -> None:
    default = asdict(Timeouts())
    values = {name: type(default[name])(place) for place, name in enumerate(default, 1)}
    changed = Timeouts(**values)
    assert check_config(asdict(changed)).limits() == changed
