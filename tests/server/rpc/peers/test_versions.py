"""Controllers, applications and databases of other versions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pliant.core.state.json_records import RECORD_VERSION
from pliant.protos import app_pb2, node_pb2
from pliant.protos.versions import PROTOCOL
from serverkit import Application, Server
from testkit import wait_until

pytestmark = pytest.mark.cluster

#: Field 101, an empty message.
UNKNOWN = b"\xaa\x06\x00"


@pytest.mark.parametrize(
    "numbers",
    [{}, {"protocol": PROTOCOL}, {"protocol": PROTOCOL + 9, "oldest_reader": PROTOCOL}],
)
def test_a_controller_that_can_be_understood_is_welcome(
    server: Server, numbers: dict[str, int]
) -> None:
    node = server.controller("n1", 2, **numbers)
    welcome = node.expect("welcome")
    assert (welcome.protocol, welcome.oldest_reader <= PROTOCOL) == (PROTOCOL, True)
    node.close()


def test_a_controller_that_is_too_new_is_refused_by_number(server: Server) -> None:
    node = server.controller("n1", 2, protocol=PROTOCOL + 9, oldest_reader=PROTOCOL + 8)
    refused = node.expect("refused")
    assert refused.protocol == PROTOCOL
    assert f"protocol {PROTOCOL + 9}" in refused.reason
    assert "too new" in refused.reason
    node.close()
    # It was not taken down in any list.
    with server.user() as user:
        assert user.do("nodes")["nodes"] == []


def test_a_report_that_is_not_known_is_passed_over_and_counted(server: Server) -> None:
    node = server.controller("n1", 2).welcome()
    node.say(node_pb2.NodeReport.FromString(UNKNOWN))
    node.beat(reports=1, orders=0)
    with server.user() as user:
        number = user.submit()
        start = node.expect("start_world")
        node.exit(start, 3)
        wait_until(lambda: user.job(number)["state"] == "FAILED")
        assert user.job(number)["exit_code"] == 3
    assert not node.ended.is_set()
    node.close()


def test_unknown_messages_of_an_application_are_ignored(server: Server) -> None:
    node = server.controller("n1", 2).welcome()
    with server.user() as user:
        number = user.submit(sizes="1-2", type="mpi")
        start = node.find("start_world")
        application = Application(start, sizes="1-2")
        application.expect("welcome")
        application.say(app_pb2.AppReport.FromString(UNKNOWN))
        progress = app_pb2.Progress(iteration=7, iterations=9)
        application.say(app_pb2.AppReport(progress=progress))
        wait_until(lambda: (user.job(number)["progress"] or {}).get("iteration") == 7)
        assert not application.ended.is_set()
        application.close()
        node.exit(start)
        wait_until(lambda: user.job(number)["state"] not in {"RUNNING", "STARTING", "COMPLETING"})
    node.close()


def change(path: Path, table: str, column: str, how: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite the texts of a column as another version would have written them."""
    with closing(sqlite3.connect(path)) as connection, connection:
        found = connection.execute(f'SELECT rowid, "{column}" FROM "{table}"').fetchall()
        for rowid, text in found:
            data = json.loads(text)
            how(data)
            connection.execute(
                f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (json.dumps(data), rowid)
            )


def add_keys(data: dict[str, Any]) -> None:
    data["colour"] = "of another version"
    data.pop("cut_off", None)


def test_the_database_of_another_version_is_read(server: Server) -> None:
    server.controller("n1", 2).welcome().close()
    with server.user() as user:
        number = user.submit(argv=["/bin/echo", "a"], hold=True)
    server.stop()
    path = server.state / "pliant.db"
    for table, column in (("job", "record"), ("job", "summary"), ("job", "program")):
        change(path, table, column, add_keys)
    server.start()
    node = server.controller("n1", 2).welcome()
    with server.user() as user:
        user.do("release", id=number)
    start = node.find("start_world")
    assert (start.job, list(start.argv)) == (number, [b"/bin/echo", b"a"])
    node.exit(start)
    node.close()


@pytest.mark.parametrize("arguments", [[], ["--recover"]])
def test_records_of_a_later_form_are_refused_and_kept(
    make_server: Callable[..., Server], arguments: list[str]
) -> None:
    server = make_server().start()
    server.controller("n1", 2).welcome().close()
    with server.user() as user:
        user.submit(hold=True)
    server.stop()
    path = server.state / "pliant.db"
    change(path, "job", "record", lambda data: data.update(version=RECORD_VERSION + 1))
    process = server.spawn(*arguments)
    assert process.wait(60) == 1
    said = server.log().splitlines()[-1]
    assert f"record version {RECORD_VERSION + 1}" in said
    assert "newer" in said
    change(path, "job", "record", lambda data: data.update(version=RECORD_VERSION))
    server.start()
    with server.user() as user:
        assert len(user.do("jobs", all=True)["jobs"]) == 1
