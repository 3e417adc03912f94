"""Case 31: an older copy of the job database is noticed, and no number comes again."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from pliant.server.database.generation import (
    next_generation,
    read_last_generation,
    write_last_generation,
)
from pliant.server.database.meta_keys import LAST_JOB_ID, MAX_ID_IN_FILE, find_invalid
from pliant.server.database.replaced_database_check import FILE_NAME as COMMITS_FILE
from pliant.server.database.replaced_database_check import KEY, CommitCount, LastSeen
from pliant.server.registry.job_ids import MAX_LOST_IDS
from pliant.server.rpc.node_list import stale_server_reason
from serverkit import Controller, Server


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "server.generation"


def following(
    meta: Mapping[str, str],
    path: Path,
    last_job: int,
    seen: LastSeen = LastSeen(),  # noqa: B008 - a value
) -> dict[str, str]:
    """What is stored for the next start, but for the count of changes, which begins anew."""
    fresh = dict(next_generation(meta, path, last_job, seen))
    assert fresh.pop(KEY) == f"{fresh['generation']} 0"
    return fresh


def left_out(last_job: int, generation: int, resizes: int = 1) -> dict[str, str]:
    """The numbers of runs and resizes that are left out over an older copy."""
    return {
        "runs_from": f"{last_job} {1000 * generation}",
        "next_resize": str(resizes + MAX_LOST_IDS),
    }


def test_it_grows_with_each_start(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert following({}, path, 0) == {"generation": "1"}
    write_last_generation(path, "1")
    assert following({"generation": "1"}, path, 7) == {"generation": "2"}
    # Killed after the database had it, and before the file: nothing is wrong.
    assert following({"generation": "2"}, path, 7) == {"generation": "3"}
    assert caplog.text == ""


def test_a_copy_of_the_same_generation_is_told_and_no_number_given_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_last_generation(path, "5")
    meta = {"generation": "5", KEY: "5 90"}
    level, ahead = LastSeen(CommitCount(5, 90), 8), LastSeen(CommitCount(5, 100), 9)
    assert following(meta, path, 7, LastSeen(CommitCount(4, 200), 9)) == {"generation": "6"}
    assert following(meta, path, 7, level) == {"generation": "6"}
    assert caplog.text == ""
    assert following(meta, path, 7, ahead) == {"generation": "6", LAST_JOB_ID: "9"} | left_out(7, 6)
    assert "at change 90 of generation 5, but this server has stored change 100" in caplog.text
    assert "numbered from 10" in caplog.text
    given = {**meta, LAST_JOB_ID: "50"}
    assert following(given, path, 7, ahead)[LAST_JOB_ID] == "50"


def test_without_its_file_the_generation_follows_from_the_commit_count(path: Path) -> None:
    meta = {"generation": "3", KEY: "3 90"}
    assert following(meta, path, 7, LastSeen(CommitCount(5, 1), 9))["generation"] == "6"


def test_an_older_copy_is_told_and_leaves_numbers_out(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_last_generation(path, "5")
    fresh = following({"generation": "3"}, path, 7)
    assert fresh == {"generation": "6", LAST_JOB_ID: str(7 + MAX_LOST_IDS)} | left_out(7, 6)
    assert "has generation 3, but this server has had generation 5" in caplog.text
    assert f"numbered from {8 + MAX_LOST_IDS}" in caplog.text
    write_last_generation(path, "8")
    again = following(fresh, path, 7)
    given = {"generation": "9", LAST_JOB_ID: str(7 + 2 * MAX_LOST_IDS)}
    assert again == given | left_out(7, 9, 1 + MAX_LOST_IDS)


def test_runs_of_many_generations_fit_into_messages(path: Path) -> None:
    write_last_generation(path, str(1 << 38))
    run = int(following({"generation": "3"}, path, 7)["runs_from"].split()[1])
    assert 0 < run < (1 << 32) - 1000


def test_a_new_database_continues_the_generation_of_the_old_one(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_last_generation(path, "5")
    assert following({}, path, 0, LastSeen(CommitCount(5, 100), 9)) == {"generation": "6"}
    assert caplog.text == ""


@pytest.mark.parametrize(
    "content", [b"", b"five\n", b"-1", b"\xff\xfe", b"1 2", b"9" * 20, b"9" * 5000]
)
def test_a_damaged_file_is_not_taken_for_none(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(OSError, match="does not hold the generation of the server: if"):
        read_last_generation(path)


@pytest.mark.parametrize(
    ("obeyed", "refused"),
    [
        ((0, ""), False),
        ((2, "a"), False),
        ((3, ""), False),
        ((3, "own"), False),
        ((3, "other"), True),
        ((4, "own"), True),
        ((4, ""), True),
    ],
)
def test_a_node_that_has_obeyed_another_server(obeyed: tuple[int, str], refused: bool) -> None:
    why = stale_server_reason((3, "own"), obeyed)
    assert (why is not None) == refused
    assert why is None or "old copy of the database" in why


def test_a_server_with_a_damaged_file_says_so(make_server: Callable[..., Server]) -> None:
    server = make_server().start()
    assert server.stop() == 0
    (server.state / "server.generation").write_text("\n")
    assert "server.generation does not hold the generation of the server" in refused(server)


def refused(server: Server) -> str:
    """Start it; return the one line that says why it does not serve."""
    before = len(server.log())
    assert server.spawn().wait(60) == 1
    (said,) = server.log()[before:].splitlines()
    return said


@pytest.mark.parametrize("killed", [False, True])
def test_a_number_that_was_never_counted_does_not_get_into_the_database(
    server: Server, killed: bool
) -> None:
    server.stop(signal.SIGKILL if killed else signal.SIGTERM)
    used, seen = server.state / "server.generation", server.state / COMMITS_FILE
    used.write_text("99999999999999999999\n")
    assert "server.generation does not hold the generation of the server" in refused(server)
    used.write_text("1\n")
    for poison in ("99999999999999999999999 1 5", "1 99999 9223372036854775807"):
        seen.write_text(f"{poison}\n")
        server.start()
        node = server.controller().welcome()
        with server.user() as user:
            user.submit(hold=True)
            number = int(user.do("ping")["generation"])
        node.close()
        assert server.stop() == 0
    assert (number, read_last_generation(used)) == (3, 3)


def test_the_greatest_number_of_a_file_can_be_counted_on(path: Path) -> None:
    write_last_generation(path, str(MAX_ID_IN_FILE))
    fresh = following({"generation": "3"}, path, 7, LastSeen(CommitCount(5, 1), MAX_ID_IN_FILE))
    assert find_invalid(fresh) == []


def end(node: Controller) -> int:
    """End the one job that is ordered to start; return its number."""
    order = node.find("start_world")
    node.exit(order)
    node.find("exit_ack")
    return int(order.job)


@pytest.mark.case(31)
def test_numbers_are_not_reused_on_an_older_copy(server: Server) -> None:
    node = server.controller().welcome()
    with server.user() as user:
        first = user.submit()
        assert end(node) == first
    node.close()
    assert server.stop() == 0
    copy = server.state.parent / "copy.db"
    shutil.copy(server.state / "pliant.db", copy)

    server.start()
    node = server.controller().welcome()
    with server.user() as user:
        lost = user.submit()
        assert end(node) == lost
    node.close()
    server.stop(signal.SIGKILL)
    for part in server.state.glob("pliant.db*"):
        part.unlink()
    shutil.copy(copy, server.state / "pliant.db")

    server.start()
    assert "but this server has had generation 2: it is an older copy" in server.log()
    server.stop(signal.SIGKILL)  # nothing was submitted: the next start knows it still
    server.start()
    assert server.log().count("it is an older copy") == 1
    with server.user() as user:
        assert user.do("ping")["generation"] == 4
    node = server.controller(generation=2, life="of the second start").welcome()
    with server.user() as user:
        number = user.submit()
        assert number == first + MAX_LOST_IDS + 1
        assert end(node) == number
        assert user.job(number)["state"] == "COMPLETED"
    node.close()
    assert server.stop() == 0


def put_back(server: Server, copy: Path) -> None:
    """Put a copy in the place of the database, as ``mv`` does."""
    draft = server.state / "draft"
    shutil.copy(copy, draft)
    for part in ("pliant.db-wal", "pliant.db-shm"):
        (server.state / part).unlink(missing_ok=True)
    draft.rename(server.state / "pliant.db")


def transfer(source: Path, target: Path) -> None:
    """Copy a database that may be in use, as ``.backup`` and ``.restore`` of SQLite do."""
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


def copied(server: Server) -> Path:
    copy = server.state.parent / "copy.db"
    transfer(server.state / "pliant.db", copy)
    return copy


@pytest.mark.case(31)
def test_numbers_are_not_reused_on_a_copy_from_the_same_start(server: Server) -> None:
    node = server.controller().welcome()
    with server.user() as user:
        first = user.submit()
        assert end(node) == first
        copy = copied(server)
        lost = user.submit()
        assert end(node) == lost
    node.close()
    server.stop(signal.SIGKILL)
    put_back(server, copy)
    server.start()
    assert "it is an older copy" in server.log()
    node = server.controller(generation=1).welcome()
    with server.user() as user:
        assert user.submit() == end(node) == lost + 1
    node.close()
    assert server.stop() == 0


@pytest.mark.case(31)
@pytest.mark.parametrize("restored", [False, True], ids=["renamed", "restored"])
def test_a_copy_that_is_put_back_under_a_server_ends_it(server: Server, restored: bool) -> None:
    node = server.controller().welcome()
    copy = copied(server)
    with server.user() as user:
        lost = user.submit(hold=True)
    if restored:
        transfer(copy, server.state / "pliant.db")
    else:
        put_back(server, copy)
    assert server.process is not None
    with pytest.raises((OSError, AssertionError)), server.user() as user:
        user.submit()
    assert server.process.wait(30) == 1
    assert server.log().count("nothing more can be stored") == 1
    assert "Traceback" not in server.log()
    node.close()
    server.start()
    node = server.controller(generation=1).welcome()
    with server.user() as user:
        assert user.submit() == end(node) == lost + 1
    node.close()
    assert server.stop() == 0


def test_a_damaged_file_of_changes_is_no_obstacle(server: Server) -> None:
    assert server.stop() == 0
    (server.state / COMMITS_FILE).write_bytes(b"\xff 1 2")
    server.start()
    assert "older copy" not in server.log()
    assert server.stop() == 0


@pytest.mark.case(31)
def test_another_server_of_the_same_generation_is_refused(server: Server) -> None:
    node = server.controller().welcome()
    node.close()
    other = server.controller(name="n2", generation=1, life="of another")
    assert "of another server: this server runs on an old copy" in other.find("refused").reason
    other.close()


@pytest.mark.case(31)
def test_an_end_that_is_told_again_after_the_job_changes_nothing(server: Server) -> None:
    """A doubled order is answered so by a controller whose world has ended."""
    node = server.controller(slots=1).welcome()
    with server.user() as user:
        first = user.submit()
        order = node.find("start_world")
        node.exit(order)
        node.find("exit_ack")
        second = user.submit()
        running = node.find("start_world")
        kinds = user.kinds(first)
        node.exit(order, code=126)
        node.find("exit_ack")
        assert user.kinds(first) == kinds
        assert user.job(first)["state"] == "COMPLETED"
        assert user.job(second)["state"] in ("STARTING", "RUNNING")
        node.exit(running)
        node.find("exit_ack")
        assert user.job(second)["state"] == "COMPLETED"
    node.close()
