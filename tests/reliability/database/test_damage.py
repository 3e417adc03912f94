"""Case 18: a damaged database is named with a way out that works, never taken for an empty one."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.commands import run_command
from clusterkit.evidence import gather
from pliant.protos import node_pb2
from serverkit import Server, User

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

JOBS, PAGE = 60, 4096
#: What begins a page that holds rows.
ROWS = 13


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the state of a stopped server that has acknowledged jobs, of some pages together."""
    server = Server(tmp_path_factory.mktemp("stored")).start()
    node = server.controller().welcome()
    with server.user() as user:
        for number in range(JOBS):
            submit(user, number)
    node.close()
    assert server.stop() == 0
    return server.state


@pytest.fixture
def stopped(state_dir: Path, stored: Path) -> Iterator[Server]:
    """Return a server with these jobs that does not run yet."""
    server = Server(state_dir.parent)
    shutil.copytree(stored, server.state, dirs_exist_ok=True)
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture
def server(stopped: Server) -> Server:
    """Return a running server with these jobs."""
    return stopped.start()


def submit(user: User, number: int) -> int:
    return user.submit(hold=True, name=f"job {number}", env={"X": "x" * 1000})


def names(server: Server) -> dict[int, str]:
    with server.user() as user:
        return {
            job["id"]: job["name"] for job in user.do("jobs", ids=list(range(1, 2 * JOBS)))["jobs"]
        }


def refused(server: Server) -> str:
    """Start it; return the one line that says why it does not serve."""
    before = len(server.log())
    process = server.spawn()
    assert process.wait(60) == 1
    said = server.log()[before:].splitlines()
    assert len(said) == 1, said
    return said[0]


def header(content: bytes) -> bytes:
    return bytes(100) + content[100:]


def first_page(content: bytes) -> bytes:
    return bytes(PAGE) + content[PAGE:]


def middle_page(content: bytes) -> bytes:
    with_rows = [at for at in range(0, len(content), PAGE) if content[at] == ROWS]
    at = with_rows[len(with_rows) // 2]
    return content[:at] + bytes(PAGE) + content[at + PAGE :]


def tail(content: bytes) -> bytes:
    return content[: len(content) * 3 // 4 + 100]


def tail_of_whole_pages(content: bytes) -> bytes:
    return content[: len(content) * 3 // 4 // PAGE * PAGE]


@pytest.mark.case(18)
@pytest.mark.parametrize(
    ("damage", "left"),
    [
        (header, JOBS),
        (first_page, JOBS),
        (middle_page, JOBS // 2),
        (tail, JOBS // 4),
        (tail_of_whole_pages, JOBS // 4),
    ],
)
def test_a_damaged_database_is_refused_and_can_be_recovered(
    stopped: Server, damage: Callable[[bytes], bytes], left: int
) -> None:
    server = stopped
    path = server.state / "pliant.db"
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    said = refused(server)
    assert str(path) in said
    assert path.read_bytes() == damaged, "the evidence was changed"
    recovered(said)
    assert (server.state / "pliant.db.damaged1").read_bytes() == damaged
    server.start()
    known = names(server)
    assert len(known) >= left
    assert all(name == f"job {number - 1}" for number, name in known.items())
    node = server.controller().welcome()
    with server.user() as user:
        assert submit(user, 0) == max(known) + 1
    node.close()
    assert gather(server.state).integrity == "ok"


@pytest.mark.case(18)
def test_without_its_log_the_database_has_what_was_in_it_at_the_last_start(
    server: Server,
) -> None:
    known = names(server)
    assert len(known) == JOBS
    node = server.controller().welcome()
    with server.user() as user:
        submit(user, JOBS)
    node.close()
    server.stop(signal.SIGKILL)
    log = server.state / "pliant.db-wal"
    assert log.stat().st_size > 0
    log.unlink()
    server.start()
    assert known.items() <= names(server).items()
    assert server.stop() == 0


@pytest.mark.case(18)
def test_a_job_that_was_lost_with_the_log_is_noticed_and_its_number_not_given_again(
    server: Server,
) -> None:
    node = server.controller().welcome()
    with server.user() as user:
        lost = user.submit()
    start = node.find("start_world")
    node.close()
    server.stop(signal.SIGKILL)
    (server.state / "pliant.db-wal").unlink()
    server.start()
    world = node_pb2.LiveWorld(
        world=start.world, job=lost, run=1, live_processors=[p.processor for p in start.ranks]
    )
    node = server.controller(worlds=[world]).welcome()
    assert node.find("kill").job == lost
    assert f"job {lost}, which the job database does not know" in server.log()
    with server.user() as user:
        assert user.submit() == lost + 1
    assert node.find("start_world").world != start.world
    node.close()
    assert server.stop() == 0


@pytest.mark.case(18)
def test_a_single_value_that_no_server_has_stored(stopped: Server) -> None:
    """After each recovery, the server names the next value, and no earlier one."""
    values: list[tuple[str, str | bytes]] = [
        ("commits", "xx"),
        ("generation", "xx"),
        ("generation", "99999999999999999999"),
        ("last_number", "9223372036854775807"),
        ("next_resize", "-1"),
        ("port", ""),
        ("clock", "boot later"),
        ("memory", "{"),
        ("key", "no"),
        ("key", b"blob"),
    ]
    change = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"
    for key, value in values:
        with closing(sqlite3.connect(stopped.state / "pliant.db")) as connection:
            connection.execute(change, (key, value))
            connection.commit()
        said = refused(stopped)
        assert f"pliant.db is damaged: {key} in table meta is {value!r}; recover" in said
        assert "the damaged file is kept" in recovered(said)
    stopped.start()
    assert len(names(stopped)) == JOBS
    assert stopped.stop() == 0


DAMAGE = '{"x"'


def damage_row(server: Server, table: str, column: str, key: str, value: object) -> None:
    with closing(sqlite3.connect(server.state / "pliant.db")) as connection:
        change = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"
        assert connection.execute(change, (DAMAGE, value)).rowcount == 1
        connection.commit()


def recovered(said: str) -> str:
    found = re.search("recover what can be read with: (.*)", said)
    assert found is not None, said
    told = run_command(*shlex.split(found[1]))
    assert told.code == 0, told
    return told.out


@pytest.mark.case(18)
@pytest.mark.parametrize("column", ["record", "summary", "program"])
def test_a_damaged_row_of_a_job_is_named_and_set_aside(stopped: Server, column: str) -> None:
    server = stopped
    damage_row(server, "job", column, "id", JOBS)
    said = refused(server)
    assert f"pliant.db is damaged: {column} of job {JOBS} in table job is {DAMAGE!r}; rec" in said
    assert f"set aside: {column} of job {JOBS} in table job" in recovered(said)
    server.start()
    assert sorted(names(server)) == list(range(1, JOBS))
    node = server.controller().welcome()
    with server.user() as user:
        assert submit(user, 0) == JOBS + 1, "the number of another job was given again"
    node.close()
    assert gather(server.state).integrity == "ok"


def test_a_damaged_row_of_a_job_that_has_ended(server: Server) -> None:
    with server.user() as user:
        user.do("cancel", ids=[5])
    assert server.stop() == 0
    damage_row(server, "job", "record", "id", 5)
    assert "record of job 5 in table job is" in refused(server)


@pytest.mark.case(18)
def test_a_damaged_row_of_a_node_is_replaced(server: Server) -> None:
    node = server.controller("n2", 3).welcome()
    with server.user() as user:
        user.do("drain", node="n2", reason="fan")
    node.close()
    assert server.stop() == 0
    damage_row(server, "node", "record", "name", "n2")
    said = refused(server)
    assert f"pliant.db is damaged: record of node n2 in table node is {DAMAGE!r}; recover" in said
    assert "mended: record of node n2 in table node" in recovered(said)
    server.start()
    with server.user() as user:
        found = {node["name"]: node["slots"] for node in user.do("nodes")["nodes"]}
        assert found == {"n1": 4, "n2": 3}
    node = server.controller("n2", 3).welcome()
    with server.user() as user:
        (state,) = (n["state"] for n in user.do("nodes")["nodes"] if n["name"] == "n2")
        assert state in {"DRAINING", "DRAINED"}, "work may start where an operator wants none"
    node.close()
    assert len(names(server)) == JOBS


@pytest.mark.case(18)
def test_processes_of_a_job_that_was_set_aside_are_ended(server: Server) -> None:
    node = server.controller().welcome()
    with server.user() as user:
        lost, other = user.submit(), submit(user, JOBS)
    start = node.find("start_world")
    node.close()
    assert server.stop() == 0
    damage_row(server, "job", "record", "id", lost)
    recovered(refused(server))
    server.start()
    world = node_pb2.LiveWorld(
        world=start.world, job=lost, run=1, live_processors=[p.processor for p in start.ranks]
    )
    node = server.controller(worlds=[world]).welcome()
    assert node.find("kill").job == lost
    node.close()
    assert other in names(server)


def test_a_row_that_is_damaged_while_it_is_not_looked_at(server: Server) -> None:
    with server.user() as user:
        damage_row(server, "job_event", "data", "job = 5 AND kind", user.kinds(5)[0])
    with server.user() as user:
        error = user.ask("history", id=5)["error"]
        assert "the job database is damaged: the server's log says where" in error["message"]
    assert "data of job_event" in server.log()
    assert "Traceback" not in server.log()


@pytest.mark.case(18)
def test_an_empty_database_is_not_taken_for_a_new_one(stopped: Server) -> None:
    server = stopped
    path = server.state / "pliant.db"
    path.write_bytes(b"")
    said = refused(server)
    assert str(path) in said
    assert "is empty" in said
    (server.state / "node.secret").unlink()  # the way out that it names
    server.start()
    assert names(server) == {}
    assert server.stop() == 0
