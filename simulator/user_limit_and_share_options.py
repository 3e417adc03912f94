"""The options of ``pliant simulate`` about users: order of the queue, shares, limits."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pliant.simulator.inputs.simulation_errors import SettingsError

if TYPE_CHECKING:
    from pliant.core.values.fair_share_settings import Shares
    from pliant.core.values.user_limits import UserLimits

#: The values of --order, as in ``queue_order.QueueOrder``, which --help does not import.
ORDERS = ("fcfs", "sjf", "ljf", "priority", "fairshare")


def add_workload_options(group: "argparse._ArgumentGroup") -> None:
    """Add the option `--users`, which says which users submit which part of the simulated jobs."""
    group.add_argument(
        "--users",
        metavar="PCT:NAME,...",
        help="give PCT percent of the jobs to user NAME, or NAME@ACCOUNT, as in 50:alice,50:bob "
        "(the users and groups of a log)",
    )


def add_scheduling_options(group: "argparse._ArgumentGroup") -> None:
    """Add the options for the order of the queue, the shares of users, and their limits."""
    add = group.add_argument
    add(
        "--order",
        choices=ORDERS,
        help="order of the queue of any strategy (the strategy's own)",
    )
    add(
        "--half-life",
        metavar="T",
        help="fairshare: usage counts half after T, such as 12h, 7d, or none (7d)",
    )
    add("--shares", metavar="NAME=N,...", help="fairshare: shares of users (1)")
    add(
        "--account-shares",
        metavar="NAME=N,...",
        help="fairshare: shares of accounts; without it, accounts do not count",
    )
    add(
        "--user-limit",
        metavar="N,NAME=N,...",
        help="processors that each user, or user NAME, may use at once",
    )


def make_user_limits(options: argparse.Namespace) -> "UserLimits":
    """Return the limits that ``--user-limit`` sets on the processors in use by each user.

    Raises:
        SettingsError: the option is invalid.
    """
    from pliant.core.values.user_limits import NO_LIMITS, parse_user_limits

    if options.user_limit is None:
        return NO_LIMITS
    settings: dict[str, object] = {}
    users: dict[str, object] = {}
    for part in options.user_limit.split(","):
        name, _, number = part.strip().rpartition("=")
        if not (number.isascii() and number.isdigit()) or int(number) < 1:
            raise SettingsError(
                f"--user-limit {options.user_limit!r}: write N, NAME=N or both, as in 16,alice=32"
            )
        if name:
            users[name] = {"running_processors": int(number)}
        else:
            settings["running_processors"] = int(number)
    return parse_user_limits({**settings, "users": users})


def add_output_options(group: "argparse._ArgumentGroup") -> None:
    """Add the options for metrics of users."""
    group.add_argument("--by-user", action="store_true", help="metrics of each user, too")


def with_order(
    order: str | None, strategies: Sequence[str], options: dict[str, object]
) -> dict[str, object]:
    """Return the strategies' options with the queue order of ``--order`` added.

    Raises:
        SettingsError: the options name another order.
    """
    if order is None or list(strategies) == [order]:
        return options
    if options.get("order", order) != order:
        raise SettingsError(f"--order {order}: --strategy-option says order={options['order']}")
    return {**options, "order": order}


def make_shares(options: argparse.Namespace) -> "Shares":
    """Return the settings of fair-share scheduling.

    Raises:
        SettingsError: an option is invalid.
    """
    from pliant.core.values.fair_share_settings import parse_shares

    settings: dict[str, object] = {
        "shares": _numbers("--shares", options.shares),
        "accounts": _numbers("--account-shares", options.account_shares),
    }
    if options.half_life is not None:
        settings["half_life"] = options.half_life
    try:
        return parse_shares(settings)
    except ValueError as error:
        raise SettingsError(f"--{_option(str(error))}") from None


def _option(text: str) -> str:
    """Return an error message in which names of configuration keys are replaced by option names."""
    return text.replace("half_life", "half-life", 1).replace("accounts", "account-shares", 1)


def _numbers(option: str, text: str | None) -> dict[str, object]:
    values: dict[str, object] = {}
    for part in text.split(",") if text else ():
        name, _, number = part.strip().partition("=")
        try:
            values[name] = float(number)
        except ValueError:
            name = ""
        if not name:
            raise SettingsError(f"{option} {text!r}: write NAME=NUMBER,..., as in alice=2,bob=1")
    return values
