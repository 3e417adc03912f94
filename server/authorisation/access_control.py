"""Authorisation: which role an operation needs, and which role a user has.

The table `REQUIRED_ROLE` has the role for each operation. An operation that is not in it is
refused. A user owns the jobs that the user submitted. An operator, named in the configuration or in
the roles file, may act on all jobs and drain nodes. An administrator (the server's own account,
root, or a member named in the roles file) may also remove nodes and stop the server. docs/users.md
has the same table, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from pliant.server.authorisation.roles import Roles
from pliant.server.support.user_request_error import UserRequestError


@dataclass(frozen=True, slots=True)
class RequestingUser:
    """The user who sent a request, identified by the kernel of this host or of a login host."""

    uid: int
    user: str
    #: Ids of the user's groups.
    groups: frozenset[int] = frozenset()
    #: Name of the login agent that passed the request on; empty if the user is on this host.
    agent: str = ""
    #: Whether the user database has an entry for the user.
    is_known: bool = True


class UserRole(IntEnum):
    """The role of a user, in ascending order. Each allows all that the lower ones allow."""

    USER = 0
    OWNER = 1
    OPERATOR = 2
    ADMINISTRATOR = 3


#: The lowest role that may carry out each operation on the users' socket. Keys with spaces are
#: rights within an operation.
REQUIRED_ROLE: Mapping[str, UserRole] = {
    "submit": UserRole.USER,
    "submit if all jobs run as one account": UserRole.ADMINISTRATOR,
    "submit without limits": UserRole.OPERATOR,  # of pending jobs, bytes and submissions
    "stage": UserRole.USER,  # of the own files
    "outputs": UserRole.OWNER,
    "query": UserRole.USER,
    "prices and texts of a query": UserRole.OPERATOR,  # they depend on the jobs of others
    "jobs": UserRole.USER,  # of the jobs of others, what `without_private` leaves
    "wait": UserRole.USER,  # likewise
    "starts": UserRole.USER,  # times only, which follow from values that everybody may see
    "snapshot": UserRole.USER,  # of the jobs of others, no private values
    "private values of all jobs": UserRole.OPERATOR,
    "nodes": UserRole.USER,
    "metrics": UserRole.USER,  # numbers, which name no job and no user
    "ping": UserRole.USER,
    "shares": UserRole.USER,
    "accounting": UserRole.USER,  # of the own jobs
    "accounting of all users": UserRole.OPERATOR,
    "history": UserRole.USER,  # of the own jobs and of nodes; of a job: its owner
    "watch": UserRole.USER,  # what `jobs`, `nodes` and `history` show to the user
    "refusals": UserRole.USER,  # of the own requests
    "refusals of all users": UserRole.OPERATOR,
    "audit": UserRole.USER,  # of the own requests
    "audit of all users": UserRole.OPERATOR,
    "history of a job": UserRole.OWNER,
    "history of all jobs": UserRole.OPERATOR,
    "private values": UserRole.OWNER,
    "why": UserRole.OWNER,
    "cancel": UserRole.OWNER,
    "hold": UserRole.OWNER,
    "release": UserRole.OWNER,
    "priority": UserRole.OWNER,  # an owner may lower it
    "raise a priority": UserRole.OPERATOR,
    "signal": UserRole.OWNER,
    "suspend": UserRole.OWNER,
    "resume_job": UserRole.OWNER,
    "requeue": UserRole.OWNER,
    "resize": UserRole.OWNER,
    "strategies": UserRole.USER,
    "strategy": UserRole.OPERATOR,
    "drain": UserRole.OPERATOR,
    "resume": UserRole.OPERATOR,
    "remove": UserRole.ADMINISTRATOR,
    "stop": UserRole.ADMINISTRATOR,
}


@dataclass(slots=True)
class AccessControl:
    """Decides which role a user of this server has, and what that role allows."""

    #: The user that the server runs as.
    own_uid: int
    #: Is replaced when the roles file has been read again.
    roles: Roles = field(default_factory=Roles)

    def role(self, peer: RequestingUser, owner: int | None = None) -> UserRole:
        """Return the role of a user in a request.

        A user of a login host is never an administrator, because root of the login host can act as
        any of its users.

        Args:
            peer: the user.
            owner: the uid of the owner of the job that the request is about; None if there is none.
        """
        roles = self.roles
        if not peer.agent and (
            peer.uid in (self.own_uid, 0) or roles.administrators.include(peer.uid, peer.groups)
        ):
            return UserRole.ADMINISTRATOR
        if roles.operators.include(peer.uid, peer.groups):
            return UserRole.OPERATOR
        return UserRole.OWNER if owner is not None and peer.uid == owner else UserRole.USER

    def allows(self, operation: str, peer: RequestingUser, owner: int | None = None) -> bool:
        """Return whether a user may carry out an operation; False for an unknown operation.

        Args:
            operation: a key of `REQUIRED_ROLE`.
            peer: the user.
            owner: the uid of the owner of the job in question; None if there is no job.
        """
        needed = REQUIRED_ROLE.get(operation)
        return needed is not None and self.role(peer, owner) >= needed

    def check(
        self, operation: str, peer: RequestingUser, owner: int | None = None, whose: str = ""
    ) -> None:
        """Check that a user may carry out an operation.

        Args:
            operation: a key of `REQUIRED_ROLE`.
            peer: the user.
            owner: the uid of the owner of the job in question, None if there is no job.
            whose: a text that says whose job it is, for the message: ``job 5 belongs to ann``.

        Raises:
            UserRequestError: if the user may not.
        """
        if self.allows(operation, peer, owner):
            return
        needed = REQUIRED_ROLE.get(operation, UserRole.ADMINISTRATOR)
        if needed is UserRole.OWNER and whose:
            raise UserRequestError(whose, kind="refused")
        who = "an operator" if needed is UserRole.OPERATOR else "an administrator"
        raise UserRequestError(f"only {who} may do this", kind="refused")
