"""Each operation on the users' socket, asked for in each role; nothing is allowed by default."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from pliant.core.commands import AnswerUser
from pliant.core.events import NodeRegistered, PriorityChanged
from pliant.core.values.ids import NodeName
from pliant.core.values.timeouts import Timeouts
from pliant.server.authorisation.access_control import (
    REQUIRED_ROLE,
    AccessControl,
    RequestingUser,
    UserRole,
)
from pliant.server.config import ConfigError, check_config
from pliant.server.registry.status_cache import StatusCache
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests.answer_encoding import encode_pieces
from pliant.server.user_requests.operation_table import Operations
from serverkit.scripted import Shell
from testkit import wait_until

#: Submissions of `Shell` are of the user 1000, its server runs as the user 999.
PEERS = {
    UserRole.USER: RequestingUser(2000, "bob"),
    UserRole.OWNER: RequestingUser(1000, "ann"),
    UserRole.OPERATOR: RequestingUser(3000, "olga"),
    UserRole.ADMINISTRATOR: RequestingUser(999, "server"),
}
SECRET = "/home/ann/secret"

#: A request of each operation on job 1 or node n1, and the lowest role that may make it.
REQUESTS: Mapping[str, tuple[dict[str, Any], UserRole]] = {
    # That of a server for one user, which `Shell` is.
    "submit": ({"job": {"argv": ["true"], "cwd": "/tmp"}}, UserRole.ADMINISTRATOR),
    "stage": ({"data": ""}, UserRole.USER),
    "outputs": ({"id": 1}, UserRole.OWNER),
    "query": ({"job": {"argv": ["true"], "cwd": "/tmp"}}, UserRole.USER),
    "jobs": ({"ids": [1]}, UserRole.USER),
    "starts": ({}, UserRole.USER),
    "snapshot": ({}, UserRole.USER),
    "nodes": ({}, UserRole.USER),
    "metrics": ({}, UserRole.USER),
    "ping": ({}, UserRole.USER),
    "wait": ({"id": 1}, UserRole.USER),
    "shares": ({}, UserRole.USER),
    "accounting": ({"ids": [1]}, UserRole.USER),
    "history": ({"id": 1}, UserRole.OWNER),
    "refusals": ({}, UserRole.USER),
    "audit": ({}, UserRole.USER),
    "why": ({"id": 1}, UserRole.OWNER),
    "cancel": ({"ids": [1]}, UserRole.OWNER),
    "hold": ({"id": 1}, UserRole.OWNER),
    "release": ({"id": 1}, UserRole.OWNER),
    "priority": ({"id": 1, "priority": 5}, UserRole.OWNER),
    "signal": ({"id": 1, "signal": "USR1"}, UserRole.OWNER),
    "suspend": ({"id": 1}, UserRole.OWNER),
    "resume_job": ({"id": 1}, UserRole.OWNER),
    "requeue": ({"id": 1}, UserRole.OWNER),
    "resize": ({"id": 1, "size": 2}, UserRole.OWNER),
    "strategies": ({}, UserRole.USER),
    "strategy": ({"strategy": "sjf"}, UserRole.OPERATOR),
    "drain": ({"node": "n1"}, UserRole.OPERATOR),
    "resume": ({"node": "n1"}, UserRole.OPERATOR),
    "remove": ({"node": "n1"}, UserRole.ADMINISTRATOR),
    "stop": ({}, UserRole.ADMINISTRATOR),
}


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, "fcfs", Timeouts())
    shell.register([NodeRegistered(NodeName("n1"), 4)])
    shell.submit(argv=["/bin/true", SECRET], cwd=SECRET, stdout=f"{SECRET}/out", hold=True)
    shell.turn()
    # What binds nobody is stored behind the server's back.
    wait_until(lambda: bool(shell.reader.history(1)), what="the history of the job")
    yield shell
    shell.close()


@pytest.fixture(params=["in the status cache", "in the database only"])
def actions(shell: Shell, request: pytest.FixtureRequest) -> Operations:
    forgotten = StatusCache() if request.param == "in the database only" else None
    return shell.actions(operators=[3000], status=forgotten)


def refused(
    actions: Operations,
    operation: str,
    fields: Mapping[str, Any],
    peer: RequestingUser,
    limit_s: float = 30.0,
) -> bool:
    """Return whether a request is refused because of who makes it, within a time."""

    async def ask() -> dict[str, Any]:
        # What passes the check is handed to the core, which does not run here.
        return await asyncio.wait_for(actions.handle({"op": operation, **fields}, peer), limit_s)

    try:
        answer = asyncio.run(ask())
    except TimeoutError:
        return False
    except UserRequestError as error:
        return "belongs to" in str(error) or "may do this" in str(error)
    return any("belongs to" in result.get("error", "") for result in answer.get("results", ()))


def test_each_operation_has_a_role_and_a_test(shell: Shell) -> None:
    operations = set(shell.actions()._operations)
    assert operations == set(REQUESTS)
    assert operations <= set(REQUIRED_ROLE)


@pytest.mark.parametrize("role", UserRole, ids=lambda role: role.name.lower())
@pytest.mark.parametrize("operation", REQUESTS)
def test_an_operation_in_a_role(actions: Operations, operation: str, role: UserRole) -> None:
    fields, lowest = REQUESTS[operation]
    must_refuse = role < lowest
    # On a busy machine a refusal takes a while. What is allowed has no answer at all.
    limit_s = 30.0 if must_refuse else 0.2
    assert refused(actions, operation, fields, PEERS[role], limit_s) == must_refuse


def test_nobody_may_do_what_is_not_in_the_table() -> None:
    for peer in PEERS.values():
        assert not AccessControl(999).allows("fly", peer, owner=peer.uid)


def test_root_is_an_administrator_and_nobody_owns_a_job_without_owner() -> None:
    assert AccessControl(999).role(RequestingUser(0, "root")) is UserRole.ADMINISTRATOR
    assert AccessControl(999).role(RequestingUser(1000, "ann"), owner=None) is UserRole.USER


def answer(actions: Operations, peer: RequestingUser, **request: Any) -> dict[str, Any]:
    made = asyncio.run(actions.handle(request, peer))
    result: dict[str, Any] = json.loads(b"".join(encode_pieces(made)))
    return result


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "jobs", "ids": [1]},
        {"op": "jobs"},
        {"op": "jobs", "all": True},
        {"op": "jobs", "fields": ["id", "cwd", "command", "stdout", "progress"]},
        {"op": "jobs", "fields": ["id", "cwd", "command"]},
        {"op": "history"},
    ],
    ids=str,
)
def test_others_do_not_see_arguments_and_folders(shell: Shell, request_: dict[str, Any]) -> None:
    actions = shell.actions(operators=[3000])
    assert SECRET not in json.dumps(answer(actions, PEERS[UserRole.USER], **request_))
    if request_["op"] == "jobs":
        for role in (UserRole.OWNER, UserRole.OPERATOR, UserRole.ADMINISTRATOR):
            assert SECRET in json.dumps(answer(actions, PEERS[role], **request_))


def test_history_shows_the_own_jobs_and_nodes(shell: Shell) -> None:
    actions = shell.actions(operators=[3000])
    jobs = {
        role: {event["job"] for event in answer(actions, peer, op="history")["events"]}
        for role, peer in PEERS.items()
    }
    assert jobs == {
        UserRole.USER: {None},
        UserRole.OWNER: {None, 1},
        UserRole.OPERATOR: {None, 1},
        UserRole.ADMINISTRATOR: {None, 1},
    }


def test_others_do_not_see_what_was_refused(shell: Shell) -> None:
    actions = shell.actions(operators=[3000])
    job = {"argv": ["/bin/true"], "cwd": SECRET, "sizes": "999"}
    with pytest.raises(UserRequestError):
        answer(actions, PEERS[UserRole.OWNER], op="submit", job=job)
    wait_until(lambda: bool(shell.reader.refusals(None)), what="the record of the refusal")
    for operation in ("refusals", "history"):
        assert SECRET not in json.dumps(answer(actions, PEERS[UserRole.USER], op=operation))
        assert SECRET in json.dumps(answer(actions, PEERS[UserRole.OPERATOR], op=operation))
    assert SECRET in json.dumps(answer(actions, PEERS[UserRole.OWNER], op="refusals"))


def test_operators_are_users_of_this_machine() -> None:
    assert check_config({"operators": ["root"]}).read_roles().operators.users == {0}
    with pytest.raises(ConfigError, match="operators: there is no user 'nobody-here'"):
        check_config({"operators": ["nobody-here"]})


@pytest.mark.parametrize("role", [UserRole.OWNER, UserRole.OPERATOR, UserRole.ADMINISTRATOR])
def test_an_owner_may_only_lower_a_priority(shell: Shell, role: UserRole) -> None:
    asked: list[PriorityChanged] = []

    class Told:
        """Keeps what the core is asked."""

        def ask(self, event: PriorityChanged) -> Future[AnswerUser]:
            asked.append(event)
            answer: Future[AnswerUser] = Future()
            answer.set_result(AnswerUser(0))
            return answer

    actions = shell.actions(operators=[3000], core_loop=Told())
    asyncio.run(actions.handle({"op": "priority", "id": 1, "priority": 5}, PEERS[role]))
    assert [event.may_raise for event in asked] == [role is not UserRole.OWNER]
    for wrong in (1_000_001, "5", True, None):
        with pytest.raises(UserRequestError, match=r"^priority: expected"):
            asyncio.run(actions.handle({"op": "priority", "id": 1, "priority": wrong}, PEERS[role]))
