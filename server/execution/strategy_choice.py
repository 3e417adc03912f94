"""The choice of another strategy while the server runs; it stays in force after a restart."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pliant.server.execution.strategy_process import (
    StrategyProcess,
    StrategyProcessError,
    StrategyRefusedError,
)
from pliant.strategies import (
    OptionError,
    UnknownStrategyError,
    is_own,
    known_strategies,
    load_strategy,
)

if TYPE_CHECKING:
    # `pliant server --check` needs no database, whose import takes as long as all others.
    from pliant.server.database.statements import Write

log = logging.getLogger(__name__)

_META = "strategy"


class StrategyChoice(NamedTuple):
    """A strategy by name, with its options and the user who chose it."""

    name: str
    options: Mapping[str, object]
    user: str = ""


def check_strategy(name: str, options: Mapping[str, object]) -> None:
    """Load a strategy once to find mistakes in its name and options.

    A strategy that is not part of Pliant is loaded in a process of its own.

    Raises:
        StrategyRefusedError: there is no such strategy or option, or it cannot be loaded.
    """
    try:
        if is_own(name):
            load_strategy(name, options)
            return
        process = StrategyProcess(name, options)
        try:
            process.check()
        finally:
            process.close()
    except UnknownStrategyError as error:
        raise StrategyRefusedError("strategy", str(error)) from None
    except OptionError as error:
        raise StrategyRefusedError("strategy_options", str(error)) from None
    except StrategyProcessError as error:
        raise StrategyRefusedError("strategy", f"{name}: {error}") from None


def check_choice(choice: StrategyChoice, configured: StrategyChoice) -> None:
    """Check a strategy that a user chose while the server runs.

    Only installed strategies and the configured one can be chosen. A name of the form
    ``module:attribute`` could import and call any code in the account of the server, so it is
    accepted from the configuration only.

    Raises:
        StrategyRefusedError: the strategy is not installed, or cannot be loaded with these options.
    """
    if choice.name not in {*known_strategies(), configured.name}:
        raise StrategyRefusedError(
            "strategy",
            f"strategy {choice.name!r} is not installed; installed are: "
            f"{', '.join(known_strategies())}. Other strategies can be used from the "
            "configuration of the server",
        )
    check_strategy(choice.name, choice.options)


def stored_row(choice: StrategyChoice, configured: StrategyChoice) -> Write:
    """Return the row that stores a choice, so that it survives a restart.

    The row also names the strategy of the configuration. When the configuration names another one
    later, the choice is ignored and the configured strategy is used.
    """
    from pliant.server.database.statements import put_meta

    value = {
        "name": choice.name,
        "options": dict(choice.options),
        "user": choice.user,
        "configured": [configured.name, dict(configured.options)],
    }
    return put_meta(_META, json.dumps(value))


def strategy_in_force(meta: Mapping[str, str], configured: StrategyChoice) -> StrategyChoice:
    """Return the strategy with which a server starts.

    This is the strategy that a user chose last. It is the strategy of the configuration if that has
    changed since the choice, if no user chose one, or if the chosen one can no longer be loaded.
    """
    if _META not in meta:
        return configured
    try:
        value = json.loads(meta[_META])
        chosen = StrategyChoice(value["name"], dict(value["options"]), value["user"])
        if value["configured"] != [configured.name, json.loads(json.dumps(configured.options))]:
            return configured
        check_choice(chosen, configured)
    except (ValueError, KeyError, TypeError, StrategyRefusedError) as error:
        log.warning("strategy %s of the configuration is used: %s", configured.name, error)
        return configured
    if chosen.name != configured.name or chosen.options != configured.options:
        log.warning(
            "strategy %s, which %s chose, replaces %s of the configuration",
            chosen.name,
            chosen.user,
            configured.name,
        )
    return chosen
