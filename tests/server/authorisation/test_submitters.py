"""Who may submit jobs, to a server for one user and to one for all users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pliant.server.authorisation.access_control import AccessControl, RequestingUser
from pliant.server.authorisation.roles import Members, Roles
from pliant.server.authorisation.submitters import (
    SubmissionRules,
    Submitters,
    jobs_run_as_their_user,
)
from pliant.server.support.user_request_error import UserRequestError

ALICE = RequestingUser(5001, "alice")
ROOT = RequestingUser(0, "root")
SERVER = RequestingUser(999, "pliant")
OPERATOR = RequestingUser(3000, "olga")
WITH = {"name": "n1", "root_helper": True}
WITHOUT = {"name": "n2", "root_helper": False}
ALL = SubmissionRules(for_all_users=True)


def refusal(rules: SubmissionRules, peer: RequestingUser, nodes: Sequence[Any] = ()) -> str:
    """Return why a user may not submit a job; empty if the user may."""
    access = AccessControl(999, Roles(operators=Members(frozenset({3000}))))
    status = cast(Any, SimpleNamespace(nodes=lambda: list(nodes)))
    try:
        Submitters(rules, access, status).check(peer)
    except UserRequestError as error:
        return f"{error.kind}: {error}"
    return ""


@pytest.mark.parametrize(
    ("nodes", "answer"),
    [([], False), ([WITH], True), ([WITH, WITHOUT], False), ([{"name": "n3"}], False)],
)
def test_jobs_run_as_their_user_if_every_node_has_a_helper(
    nodes: list[dict[str, Any]], answer: bool
) -> None:
    assert jobs_run_as_their_user(nodes) is answer


@pytest.mark.parametrize("nodes", [[], [WITH]])
def test_a_server_for_one_user_takes_jobs_of_its_account_and_root(nodes: list[Any]) -> None:
    rules = SubmissionRules()
    assert "pliant up" in refusal(rules, ALICE, nodes)
    assert "pliant up" in refusal(rules, OPERATOR, nodes)
    assert refusal(rules, SERVER, nodes) == refusal(rules, ROOT, nodes) == ""


def test_other_users_submit_jobs_if_every_node_has_a_helper() -> None:
    assert refusal(ALL, ALICE, [WITH]) == ""
    assert refusal(ALL, OPERATOR, [WITH]) == ""
    assert "no root helper on n2)" in refusal(ALL, ALICE, [WITH, WITHOUT])
    assert "no node has registered" in refusal(ALL, ALICE)
    many = [{"name": f"n{number}"} for number in range(9)]
    assert "n0, n1, n2, ...)" in refusal(ALL, ALICE, many)


@pytest.mark.case(58)
def test_root_and_services_submit_no_jobs() -> None:
    assert "allow_root_jobs" in refusal(ALL, ROOT, [WITH])
    assert refusal(replace(ALL, allow_root_jobs=True), ROOT, [WITH]) == ""
    assert "lowest_uid" in refusal(ALL, SERVER, [WITH])
    assert refusal(replace(ALL, lowest_uid=500), SERVER, [WITH]) == ""
    assert "lowest_uid" in refusal(replace(ALL, lowest_uid=6000), ALICE, [WITH])


@pytest.mark.case(58)
def test_users_that_the_host_does_not_know_submit_no_jobs() -> None:
    stranger = RequestingUser(5009, "5009", is_known=False)
    assert "knows no user with the id 5009" in refusal(ALL, stranger, [WITH])
