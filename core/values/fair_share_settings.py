"""The settings of fair-share scheduling: shares of users and accounts, and the decay of usage.

``parse_shares`` reads the value of the key ``fairshare`` of the configuration, and the options of
the simulator that have the same meaning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

#: Accounts and users that the settings do not name have this many shares.
DEFAULT_SHARES = 1.0
#: Seconds after which usage counts half, if the settings do not say: a week, as in Slurm.
DEFAULT_HALF_LIFE_S = 7 * 86400.0
#: The account of jobs whose user names none, if accounts are configured and none lists the user.
DEFAULT_ACCOUNT = "default"
#: The largest number of shares.
MAX_SHARES = 1e9
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}", re.ASCII)
_TIME = re.compile(r"(\d+(?:\.\d*)?)\s*([smhdw]?)", re.ASCII)
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_MAX_HALF_LIFE_S = 1e10


class AccountError(ValueError):
    """A user may not submit to an account. The message says why, and which accounts there are."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account: a group of users who share one part of the cluster."""

    shares: float = DEFAULT_SHARES
    #: Shares of its users, by name. Empty if every user may submit to it.
    users: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shares:
    """How much of the cluster each user and account should get, and the decay of their usage."""

    #: Usage counts half after this many seconds. Infinite if it does not decay.
    half_life_s: float = DEFAULT_HALF_LIFE_S
    #: Shares by user, wherever an account does not state others.
    users: Mapping[str, float] = field(default_factory=dict)
    #: By name. If there are none, accounts are only labels, and users compete directly.
    accounts: Mapping[str, Account] = field(default_factory=dict)

    def of_account(self, account: str) -> float:
        """Return the shares of an account; the default number if the account is not known."""
        known = self.accounts.get(account)
        return DEFAULT_SHARES if known is None else known.shares

    def of_user(self, account: str, user: str) -> float:
        """Return the shares of a user in an account."""
        known = self.accounts.get(account)
        if known is not None and user in known.users:
            return known.users[user]
        return self.users.get(user, DEFAULT_SHARES)

    def account_for(self, user: str, wanted: str) -> str:
        """Return the account that a job of a user is charged to.

        Args:
            user: the user who submits the job.
            wanted: the account that the user names; empty if none.

        Raises:
            AccountError: the account does not exist, or the user may not use it.
        """
        if wanted and not is_account_name(wanted):
            raise AccountError(
                f"account: {wanted!r:.80} is no name; write letters, digits, . _ @ + -"
            )
        if not self.accounts:
            return wanted
        if not wanted:
            own = (name for name, account in self.accounts.items() if user in account.users)
            return next(own, DEFAULT_ACCOUNT)
        known = self.accounts.get(wanted)
        open_to = [n for n, a in self.accounts.items() if not a.users or user in a.users]
        which = f"{user or 'this user'} may name: {', '.join(open_to) or 'none'}"
        if known is None and wanted != DEFAULT_ACCOUNT:
            raise AccountError(f"account: there is no account {wanted}; {which}")
        if known is not None and known.users and user not in known.users:
            raise AccountError(f"account: {user} is not a user of account {wanted}; {which}")
        return wanted


def is_account_name(text: str) -> bool:
    """Return whether a text can be the name of an account."""
    return _NAME.fullmatch(text) is not None


def parse_shares(settings: Mapping[str, object]) -> Shares:
    """Read the settings of fair-share scheduling.

    Raises:
        ValueError: a value is wrong. The message begins with its key.
    """
    known = ("half_life", "shares", "accounts")
    _check_keys(settings, known, "")
    half_life = settings.get("half_life", DEFAULT_HALF_LIFE_S)
    accounts = _mapping(settings.get("accounts", {}), "accounts")
    return Shares(
        parse_half_life(half_life),
        _shares_by_name(settings.get("shares", {}), "shares"),
        {name: _account(name, value) for name, value in accounts.items()},
    )


def parse_half_life(value: object) -> float:
    """Convert a number of seconds, a text such as ``7d``, or ``none`` (no decay) to seconds.

    Raises:
        ValueError: the value is not valid. The message says what is expected.
    """
    text = "none" if value is None else str(value).strip().lower()
    if text in ("none", "inf", "infinity"):
        return math.inf
    match = _TIME.fullmatch(text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if isinstance(value, bool) or not 1.0 <= seconds <= _MAX_HALF_LIFE_S:
        raise ValueError(
            f"half_life: expected a time of at least 1s such as 12h, 7d or 2w, or none, got {value}"
        )
    return seconds


def _account(name: str, value: object) -> Account:
    where = f"accounts.{name}"
    if not is_account_name(name):
        raise ValueError(f"accounts: {name!r:.80} is no name; write letters, digits, . _ @ + -")
    if not isinstance(value, Mapping):
        return Account(_number(value, where))
    _check_keys(value, ("shares", "users"), f"{where}.")
    users = value.get("users", {})
    if isinstance(users, list) and all(isinstance(user, str) for user in users):
        users = dict.fromkeys(users, DEFAULT_SHARES)
    shares = _number(value.get("shares", DEFAULT_SHARES), f"{where}.shares")
    return Account(shares, _shares_by_name(users, f"{where}.users"))


def _shares_by_name(value: object, where: str) -> dict[str, float]:
    shares = _mapping(value, where)
    return {name: _number(number, f"{where}.{name}") for name, number in shares.items()}


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: expected names with shares, as in {{alice: 2}}, got {value}")
    for name in value:
        if not isinstance(name, str) or not name:
            raise ValueError(f"{where}: {name!r:.80} is no name; write it in quotes")
    return value


def _number(value: object, where: str) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= MAX_SHARES
    ):
        raise ValueError(
            f"{where}: expected a number of shares from 0 to {MAX_SHARES:g}, got {value}"
        )
    return float(value)


def _check_keys(given: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in known:
            raise ValueError(f"{where}{key}: unknown key; known: {', '.join(known)}")
