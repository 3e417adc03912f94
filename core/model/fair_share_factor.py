"""The fair-share factor: how far a user is below or above the user's share of the cluster.

With the normalised usage U (the part of all decayed usage) and the normalised shares S (the part of
all shares), the factor is::

    F = 2^(-U / S)

It is 1 without usage, 0.5 if the usage equals the share, and falls towards 0. This is the factor of
Slurm's multifactor priority plugin ("Classic Fairshare Algorithm", with a dampening factor of 1).
With accounts, both levels are compared as in Slurm's "Fair Tree Fairshare Algorithm": first the
accounts by their factors, then the users of an account by theirs, each normalised among its
siblings. So users of an account that has used less than its share precede all users of an account
that has used more, whatever the other users of their own account did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import exp2, inf
from typing import NamedTuple

from pliant.core.model.usage import Usage
from pliant.core.values.fair_share_settings import Shares


class Standing(NamedTuple):
    """The share and the usage of an account, or of one user within an account."""

    account: str
    #: Empty if this is the standing of an account.
    user: str
    shares: float
    #: The part of the shares of all siblings.
    normalised_shares: float
    #: Decayed processor-seconds.
    seconds: float
    #: The part of the usage of all siblings.
    normalised_usage: float
    factor: float
    #: The processors of the running jobs.
    processors: int


class FairShares:
    """Shares, usage and order of all users at one time.

    Args:
        usage: the usage of all users who have used anything.
        shares: the settings; None for equal shares.
        now: the present, in seconds since the epoch.
    """

    def __init__(self, usage: Iterable[Usage], shares: Shares | None, now: float) -> None:
        self._settings = shares = shares or Shares()
        self._accounts: defaultdict[str, float] = defaultdict(float)
        self._users: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._processors: defaultdict[tuple[str, str], int] = defaultdict(int)
        half_life_s = shares.half_life_s
        for row in usage:
            account = self._level(row.account)
            seconds = row.at_time(now, half_life_s)
            self._accounts[account] += seconds
            self._users[account, row.user] += seconds
            self._processors[account, row.user] += row.processors

    def _level(self, account: str) -> str:
        """Return the account within which a user competes with others.

        If the settings have no accounts, the result is empty: all users compete with each other.
        """
        return account if self._settings.accounts else ""

    def order(self, account: str, user: str) -> tuple[float, float]:
        """Return a key by which users are sorted; the user with the smallest key goes first.

        The key has the usage per share of the account and of the user. It orders users as the
        factors do, because these fall with it, and because siblings are normalised by the same
        sums. Unlike the factors it does not become 0 for very high usage.
        """
        account = self._level(account)
        mine = _per_share(
            self._users.get((account, user), 0.0), self._settings.of_user(account, user)
        )
        if not self._settings.accounts:
            return 0.0, mine
        total = self._accounts.get(account, 0.0)
        return _per_share(total, self._settings.of_account(account)), mine

    def standings(self, others: Iterable[tuple[str, str]] = ()) -> list[Standing]:
        """Return each account, if there are accounts, followed by its users, sorted by name.

        Args:
            others: (account, user) of users who may have used nothing, such as those with waiting
                jobs. Users with configured shares are always included.
        """
        users = {*self._users, *((self._level(account), user) for account, user in others)}
        if not self._settings.accounts:
            users |= {("", user) for user in self._settings.users}
            return self._siblings("", users)
        for name, account in self._settings.accounts.items():
            users |= {(name, user) for user in account.users}
        names = sorted({account for account, _ in users} | self._settings.accounts.keys())
        totals = {name: self._accounts.get(name, 0.0) for name in names}
        shares = {name: self._settings.of_account(name) for name in names}
        result: list[Standing] = []
        for name in names:
            processors = sum(n for (each, _), n in self._processors.items() if each == name)
            result.append(_standing(name, "", shares, totals, name, processors))
            result += self._siblings(name, {pair for pair in users if pair[0] == name})
        return result

    def _siblings(self, account: str, users: set[tuple[str, str]]) -> list[Standing]:
        names = sorted(user for _, user in users)
        totals = {user: self._users.get((account, user), 0.0) for user in names}
        shares = {user: self._settings.of_user(account, user) for user in names}
        return [
            _standing(account, user, shares, totals, user, self._processors.get((account, user), 0))
            for user in names
        ]


def factor(normalised_usage: float, normalised_shares: float) -> float:
    """Return the fair-share factor, 2^(-usage / shares)."""
    if normalised_shares <= 0.0:
        return 0.0
    return exp2(-normalised_usage / normalised_shares)


def _standing(
    account: str,
    user: str,
    shares: dict[str, float],
    usage: dict[str, float],
    name: str,
    processors: int,
) -> Standing:
    all_shares, all_usage = sum(shares.values()), sum(usage.values())
    part_of_shares = shares[name] / all_shares if all_shares else 0.0
    part_of_usage = usage[name] / all_usage if all_usage else 0.0
    return Standing(
        account,
        user,
        shares[name],
        part_of_shares,
        usage[name],
        part_of_usage,
        factor(part_of_usage, part_of_shares),
        processors,
    )


def _per_share(seconds: float, shares: float) -> float:
    return seconds / shares if shares > 0.0 else inf
