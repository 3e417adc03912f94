"""Check who may submit jobs: everybody if jobs run as their user, else only administrators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pliant.server.authorisation.access_control import AccessControl, RequestingUser
from pliant.server.registry.status_cache import StatusCache
from pliant.server.support.user_request_error import UserRequestError

#: The key of a node, in lists of nodes, which says that a root helper starts its jobs.
HELPER = "root_helper"
#: Nodes that a message names.
_MAX_NAMED = 3

#: The refusal of other users if the server is for one user.
ONE_USER = (
    "only the user of this server may do this, because its jobs run as that user; "
    "start a cluster of your own with `pliant up`"
)


@dataclass(frozen=True, slots=True)
class SubmissionRules:
    """The settings that decide which users may submit jobs."""

    #: Whether all users of this host may connect (key ``users``).
    for_all_users: bool = False
    #: Whether root may submit jobs, which then run as root.
    allow_root_jobs: bool = False
    #: Users with a lower id are accounts of services, and submit no jobs.
    lowest_uid: int = 1000


def jobs_run_as_their_user(nodes: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether every node has a root helper, which starts each job as its user."""
    found = list(nodes)
    return bool(found) and not _without_helper(found)


def _without_helper(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of nodes without a root helper, which cannot start jobs as their users."""
    return [str(node["name"]) for node in nodes if not node.get(HELPER)]


class Submitters:
    """Checks whether a user may submit a job."""

    def __init__(self, rules: SubmissionRules, access: AccessControl, status: StatusCache) -> None:
        self._rules, self._access, self._status = rules, access, status

    def check(self, peer: RequestingUser) -> None:
        """Check that a user may submit a job.

        Raises:
            UserRequestError: if the user may not. The text has the reason and the remedy.
        """
        self._access.check("submit", peer)
        if peer.agent and peer.uid == self._access.own_uid:
            raise UserRequestError(
                "jobs of the account of the server cannot be submitted from login hosts: their "
                "administrators would have the keys of the cluster",
                kind="refused",
            )
        if not self._rules.for_all_users:
            self._check_one_account(peer, ONE_USER)
            return
        nodes = self._status.nodes()
        if not jobs_run_as_their_user(nodes):
            self._check_one_account(peer, _missing_helpers(nodes))
        self._check_uid(peer)

    def _check_one_account(self, peer: RequestingUser, refusal: str) -> None:
        if not self._access.allows("submit if all jobs run as one account", peer):
            raise UserRequestError(refusal, kind="refused")

    def _check_uid(self, peer: RequestingUser) -> None:
        rules = self._rules
        if peer.uid == 0:
            if not rules.allow_root_jobs:
                raise UserRequestError(
                    "root submits no jobs here; submit as an ordinary user, or set "
                    "`allow_root_jobs: true` in the configuration of the server",
                    kind="refused",
                )
        elif peer.uid < rules.lowest_uid:
            raise UserRequestError(
                f"the user id {peer.uid} is below {rules.lowest_uid}: it belongs to a service, "
                "and services submit no jobs; an administrator can change `lowest_uid` in the "
                "configuration of the server",
                kind="refused",
            )
        elif not peer.is_known:
            raise UserRequestError(
                f"the server's host knows no user with the id {peer.uid}: an administrator must "
                "add the user to its user database",
                kind="refused",
            )


def _missing_helpers(nodes: Iterable[Mapping[str, Any]]) -> str:
    names = _without_helper(nodes)
    where = ", ".join(names[:_MAX_NAMED]) + (", ..." if len(names) > _MAX_NAMED else "")
    missing = f"no root helper on {where}" if names else "no node has registered"
    return (
        "other users cannot submit jobs to this server yet, because its jobs would run as the "
        f"account of the node controllers ({missing}); an administrator must install the root "
        "helper on each node"
    )
