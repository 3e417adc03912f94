"""The table of operations and roles in docs/users.md holds, on the real socket with real accounts.

Each role is a process of another account. The page, the table of the server and the answers of a
running server are compared with each other.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import signal
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pliant.protos.daemons.user_socket_limits import PeerLimits
from pliant.server.authorisation.access_control import REQUIRED_ROLE, UserRole
from pliant.server.authorisation.privacy import PUBLIC
from serverkit import Controller, Server, User
from testkit import ROOT, wait_until
from userkit import ALICE, BOB, needs_root, open_folder, run_as

PAGE = (ROOT / "docs" / "users.md").read_text()
SECRET = "not-for-others"
#: The words with which a request is refused because of the role.
FORBIDDEN = ("belongs to", "may do this", "only the user of this server", "cannot submit jobs")

#: A request of each operation. JOB stands for a job of alice.
JOB = "JOB"
REQUESTS: Mapping[str, dict[str, Any]] = {
    "submit": {"job": {"argv": ["true"], "cwd": "/tmp"}},
    "stage": {"data": ""},
    "outputs": {"id": JOB},
    "query": {"job": {"argv": ["true"], "cwd": "/tmp"}},
    "jobs": {"ids": [JOB]},
    "wait": {"id": JOB},
    "nodes": {},
    "ping": {},
    "starts": {},
    "snapshot": {},
    "history": {},
    "refusals": {},
    "audit": {},
    "watch": {},
    "shares": {},
    "accounting": {},
    "why": {"id": JOB},
    "cancel": {"ids": [JOB]},
    "hold": {"id": JOB},
    "release": {"id": JOB},
    "priority": {"id": JOB, "priority": -5},
    "signal": {"id": JOB, "signal": "USR1"},
    "suspend": {"id": JOB},
    "resume_job": {"id": JOB},
    "requeue": {"id": JOB},
    "resize": {"id": JOB, "size": 2},
    "strategies": {},
    "metrics": {},
    "strategy": {"strategy": "equipartition"},
    "drain": {"node": "n1", "reason": "test"},
    "resume": {"node": "n1"},
    "remove": {"node": "n1"},
    "stop": {},
}
#: Requests for rights within an operation.
RIGHTS: Mapping[str, dict[str, Any]] = {
    "history of a job": {"op": "history", "id": JOB},
}


def table() -> dict[str, tuple[bool, ...]]:
    """Return which roles may carry out each operation, by the page."""
    found = re.findall(r"^\| `([\w ]+)` \| [^|]+ " + r"\| (yes|no) " * 4 + r"\|$", PAGE, re.M)
    assert len(found) == len(dict.fromkeys(row[0] for row in found)), "a row is there twice"
    return {name: tuple(cell == "yes" for cell in cells) for name, *cells in found}


def test_the_page_has_the_table_of_the_server() -> None:
    expected = {
        operation: tuple(role >= needed for role in UserRole)
        for operation, needed in REQUIRED_ROLE.items()
    }
    assert table() == expected


def test_the_page_names_the_public_values() -> None:
    paragraph = PAGE.partition("All users see these values of each job:")[2].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", paragraph)) == PUBLIC


def test_the_page_names_the_limits() -> None:
    limits = PeerLimits()
    section = PAGE.partition("## Limits")[2]
    expected = (
        f"{limits.connections} connections",
        f"{limits.waits} requests that wait",
        f"{limits.tagged_waits} that share connections",
        f"{limits.watches} subscriptions to changes",
        f"{limits.requests} requests that are carried out",
        f"{int(limits.bytes) >> 20} MiB",
        f"no progress for {limits.stall_s:.0f} s",
    )
    assert [text for text in expected if text not in " ".join(section.split())] == []


def system_account(position: int) -> pwd.struct_passwd:
    """Return an account that every host has, which is not root's."""
    accounts = sorted((each for each in pwd.getpwall() if each.pw_uid), key=lambda e: e.pw_uid)
    return accounts[position]


OPERATOR, ADMINISTRATOR = system_account(0), system_account(1)
UIDS = {
    UserRole.USER: BOB,
    UserRole.OWNER: ALICE,
    UserRole.OPERATOR: OPERATOR.pw_uid,
    UserRole.ADMINISTRATOR: ADMINISTRATOR.pw_uid,
}


def hang_up(server: Server) -> str:
    """Send SIGHUP, and return what the server's log says about it."""
    assert server.process is not None
    before = server.log().count("SIGHUP")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log().count("SIGHUP") > before, what="the answer to SIGHUP")
    return [line for line in server.log().splitlines() if "SIGHUP" in line][before]


class ManyUsers:
    """A server for all users, with jobs of alice that are held."""

    def __init__(self, base: Path, folder: Path) -> None:
        roles = base / "roles.yaml"
        self.roles = roles
        named = {
            "operators": {"users": [OPERATOR.pw_name]},
            "administrators": {"users": [ADMINISTRATOR.pw_name]},
        }
        roles.write_text(json.dumps(named))
        self.socket = folder / "users" / "server.sock"
        self.server = Server(
            base,
            users="all",
            users_dir=str(self.socket.parent),
            roles=str(roles),
            allow_root_jobs=True,
            lowest_uid=1,
        )
        self.node: Controller | None = None
        self._jobs: Iterator[int] = iter(())

    def start(self, jobs: int) -> None:
        """Start the server with this number of jobs of alice."""
        self.server.start()
        self.node = self.server.controller().welcome()
        with self.server.user() as user:
            numbers = [
                user.submit(
                    argv=["sh", SECRET],
                    cwd=f"/tmp/{SECRET}",
                    stdout=f"/tmp/{SECRET}/out",
                    env={"SECRET": SECRET},
                    hold=True,
                    sizes="1-2",
                )
                for _ in range(jobs)
            ]
        self.node.close()
        self.server.stop()
        # Jobs cannot be submitted as another user before its nodes have root helpers.
        with contextlib.closing(sqlite3.connect(self.server.state / "pliant.db")) as database:
            database.execute("UPDATE job SET uid = ?", [ALICE])
            for number, text in database.execute("SELECT id, record FROM job").fetchall():
                record = json.loads(text)
                assert record["uid"] == 0
                record |= {"uid": ALICE, "user": "alice"}
                database.execute(
                    "UPDATE job SET record = ? WHERE id = ?", [json.dumps(record), number]
                )
            database.commit()
        self.server.start()
        self.node = self.server.controller().welcome()
        self._jobs = iter(numbers)

    def next_job(self) -> int:
        return next(self._jobs)

    def ask(self, uid: int, *requests: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the answers to requests of an account, on one connection."""
        return run_as(uid, partial(ask_all, self.socket, requests))


def ask_all(socket: Path, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the answers to requests."""
    with User(socket) as user:
        return [user.ask(**request) for request in requests]


def can_connect(socket: Path) -> bool:
    try:
        User(socket).close()
    except PermissionError:
        return False
    return True


def filled(request: Mapping[str, Any], job: int) -> dict[str, Any]:
    """Return a request about a job."""
    return {
        key: job if value == JOB else [job] if value == [JOB] else value
        for key, value in request.items()
    }


def is_forbidden(answer: Mapping[str, Any]) -> bool:
    """Return whether a request was refused because of the role of the user."""
    results = answer.get("results") or [answer]
    texts = [json.dumps(each.get("error", "")) for each in results]
    return any(word in text for text in texts for word in FORBIDDEN)


@pytest.fixture
def many(tmp_path: Path) -> Iterator[ManyUsers]:
    with open_folder() as folder:
        made = ManyUsers(tmp_path, folder)
        yield made
        if made.node is not None:
            made.node.close()
        made.server.stop()


@needs_root
@pytest.mark.cluster
@pytest.mark.case(58, 63)
def test_each_operation_in_each_role_on_the_socket(many: ManyUsers) -> None:
    """One connection of each account asks for everything, each time about a job of its own."""
    expected = table()
    named = [name for name in expected if " " not in name]
    assert set(named) == set(REQUESTS)
    # A stop at the end, because nothing can be asked after it. No wait for a job that is held. A
    # subscription has a connection of its own; see the next test.
    order = [name for name in named if name not in {"stop", "wait", "watch"}] + ["stop"]
    many.start(jobs=len(UserRole) * (len(order) + len(RIGHTS)))
    for number, role in enumerate(UserRole):
        requests = [{"op": name, **filled(REQUESTS[name], many.next_job())} for name in order] + [
            filled(request, many.next_job()) for request in RIGHTS.values()
        ]
        requests.append(requests.pop(order.index("stop")))
        names = [*(name for name in order if name != "stop"), *RIGHTS, "stop"]
        answers = many.ask(UIDS[role], *requests)
        for name, answer in zip(names, answers, strict=True):
            may = expected[name][number]
            if name == "submit":  # the nodes of this test have no root helper
                may = expected["submit if all jobs run as one account"][number]
            assert is_forbidden(answer) == (not may), f"{name} as {role.name}: {answer}"
        seen = json.dumps(answers)
        assert (SECRET in seen) == (role is not UserRole.USER), f"what {role.name} sees"


def subscribe(socket: Path) -> list[dict[str, Any]]:
    """Return the state and all past events that a subscription sends."""
    with User(socket) as user:
        messages = [user.do("watch", after=0)]
        while not any(
            event["kind"] == "node.registered"
            for message in messages
            for event in message.get("events", ())
        ):
            messages.append(user.receive())
        return messages


@needs_root
@pytest.mark.cluster
@pytest.mark.case(63)
def test_subscribers_see_what_their_role_may_see(many: ManyUsers) -> None:
    many.start(jobs=1)
    job = many.next_job()
    for role in UserRole:
        messages = run_as(UIDS[role], partial(subscribe, many.socket))
        events = [event for message in messages for event in message.get("events", ())]
        assert [row["id"] for row in messages[0]["jobs"]] == [job]
        assert (SECRET in json.dumps(messages)) == (role is not UserRole.USER)
        assert any(event["job"] == job for event in events) == (role is not UserRole.USER)
        (answer,) = many.ask(UIDS[role], {"op": "watch", "id": job, "after": 0})
        assert is_forbidden(answer) == (role is UserRole.USER)


@needs_root
@pytest.mark.cluster
def test_a_user_changes_nothing_of_the_job_of_another(many: ManyUsers) -> None:
    many.start(jobs=1)
    job = many.next_job()

    def state() -> dict[str, Any]:
        with many.server.user() as user:
            found = user.job(job)
            return {**found, "events": len(user.do("history", id=job)["events"])}

    before = state()
    changing = [
        {"op": name, **filled(REQUESTS[name], job)}
        for name, needed in REQUIRED_ROLE.items()
        if needed is UserRole.OWNER and name in REQUESTS
    ]
    assert all(map(is_forbidden, many.ask(BOB, *changing)))
    assert state() == before
    (answer,) = many.ask(ALICE, {"op": "cancel", "ids": [job]})
    assert answer["results"] == [{"id": job, "ok": True}]


@needs_root
@pytest.mark.cluster
@pytest.mark.case(58)
def test_a_request_cannot_name_another_user(many: ManyUsers) -> None:
    many.start(jobs=1)
    job = many.next_job()
    for claimed in ({"uid": ALICE}, {"user": "alice"}, {"peer": {"uid": 0}}):
        (answer,) = many.ask(BOB, {"op": "cancel", "ids": [job], **claimed})
        assert is_forbidden(answer)
    (answer,) = many.ask(0, {"op": "submit", "job": {"argv": ["true"], "cwd": "/", "uid": ALICE}})
    assert not answer["ok"]


@needs_root
@pytest.mark.cluster
def test_the_run_folder_stays_private(many: ManyUsers) -> None:
    many.start(jobs=0)

    assert run_as(BOB, partial(can_connect, many.socket))
    for name in ("server.sock", "grpc.sock"):
        assert not run_as(BOB, partial(can_connect, many.server.run / name))
    assert oct(os.stat(many.socket.parent).st_mode & 0o777) == "0o755"


@needs_root
@pytest.mark.cluster
def test_roles_are_read_again_on_sighup(many: ManyUsers) -> None:
    many.start(jobs=1)
    job = many.next_job()
    lower = {"op": "priority", "id": job, "priority": -1}
    assert not is_forbidden(many.ask(OPERATOR.pw_uid, lower)[0])
    many.roles.write_text("{}")
    hang_up(many.server)
    assert is_forbidden(many.ask(OPERATOR.pw_uid, lower)[0])
    many.roles.write_text(json.dumps({"operators": {"users": [OPERATOR.pw_name]}}))
    many.roles.chmod(0o666)
    assert "nobody else may write" in hang_up(many.server)
    assert is_forbidden(many.ask(OPERATOR.pw_uid, lower)[0])
