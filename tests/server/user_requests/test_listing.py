"""Long lists of jobs: made in pieces, between which others are served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from pliant.core.values.timeouts import Timeouts
from pliant.protos.daemons.user_socket_limits import PeerTable
from pliant.server.authorisation.access_control import RequestingUser
from pliant.server.registry.job_program import Summary
from pliant.server.registry.status_cache import StatusCache
from pliant.server.user_requests.answer_encoding import OBJECTS_AT_ONCE, Objects, encode_pieces
from pliant.server.user_requests.connections.connection import UserConnection
from pliant.server.user_requests.listing import BLOCK_JOBS
from serverkit.scripted import Shell

from ..registry.test_status_cache import job

ANN = RequestingUser(1000, "ann")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, "fcfs", Timeouts())
    yield shell
    shell.close()


def fill(status: StatusCache, jobs: int) -> None:
    for number in range(1, jobs + 1):
        made = job(number)
        status.publish_summary(made.id, Summary("out", "/", "true"))
        status.publish_jobs([made])


def ask(shell: Shell, **request: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        b"".join(encode_pieces(asyncio.run(shell.actions().handle(request, ANN))))
    )
    return answer


def test_an_answer_in_pieces_is_the_same_answer() -> None:
    jobs = [{"id": number, "name": f"jöb\udc80{number}"} for number in range(1000)]
    answer = {"ok": True, "jobs": Objects(iter(jobs)), "now": 1.5, "none": Objects([])}
    made = list(encode_pieces(answer))
    assert len(made) > 1000 / OBJECTS_AT_ONCE
    assert json.loads(b"".join(made)) == {"ok": True, "jobs": jobs, "now": 1.5, "none": []}
    assert b"".join(made).count(b"\n") == 1
    assert json.loads(b"".join(encode_pieces({"jobs": Objects([1])}))) == {"jobs": [1]}


def test_rows_hold_the_values_that_were_named(shell: Shell) -> None:
    fill(shell.status, 3)
    full = ask(shell, op="jobs")["jobs"]
    for fields in (["id", "state", "name"], ["id", "progress", "memory_bytes"], ["id", "unknown"]):
        answer = ask(shell, op="jobs", fields=fields)
        assert answer["fields"] == fields
        assert answer["rows"] == [[info.get(name) for name in fields] for info in full]


def test_blocks_hold_the_values_of_rows_and_equal_ones_once(shell: Shell) -> None:
    fill(shell.status, BLOCK_JOBS + 2)
    fields = ["id", "state", "processors", "unknown"]
    rows = ask(shell, op="jobs", fields=fields)["rows"]
    answer = ask(shell, op="jobs", fields=fields, by_column=True)
    assert (answer["fields"], "rows" in answer) == (fields, False)
    assert [block["count"] for block in answer["blocks"]] == [BLOCK_JOBS, 2]
    for block in answer["blocks"]:
        here, rows = rows[: block["count"]], rows[block["count"] :]
        assert block["columns"] == [[row[0] for row in here], ["RUNNING"], [1], [None]]
    assert ask(shell, op="jobs", names=["none"], fields=fields, by_column=True)["blocks"] == []


@pytest.mark.parametrize("fields", ["id", [], ["id"], [1, 2], ["id"] * 65])
def test_fields_must_be_names(shell: Shell, fields: Any) -> None:
    from pliant.server.support.user_request_error import UserRequestError

    with pytest.raises(UserRequestError, match="fields: expected 2 to 64 names"):
        ask(shell, op="jobs", fields=fields)


def test_others_are_served_while_a_long_list_is_sent(shell: Shell) -> None:
    fill(shell.status, 20 * OBJECTS_AT_ONCE)
    actions = shell.actions()

    class Writer:
        """Counts what is written to it."""

        def __init__(self) -> None:
            self.written: list[bytes] = []

        def write(self, data: bytes) -> None:
            self.written.append(data)

        async def drain(self) -> None:
            pass

    async def serve(line: bytes, writer: Writer) -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(line)
        reader.feed_eof()
        with PeerTable().connection(ANN.uid) as use:
            made = cast(asyncio.StreamWriter, writer)
            await UserConnection(reader, made, ANN, use, actions.handle).serve()

    async def scenario() -> tuple[int, int]:
        long, short = Writer(), Writer()
        listing = asyncio.ensure_future(serve(b'{"op":"jobs"}\n', long))
        while not long.written:
            await asyncio.sleep(0)
        await serve(b'{"op":"ping"}\n', short)
        meanwhile = len(long.written)
        await listing
        assert json.loads(b"".join(short.written))["ok"]
        assert len(json.loads(b"".join(long.written))["jobs"]) == 20 * OBJECTS_AT_ONCE
        return meanwhile, len(long.written)

    meanwhile, in_all = asyncio.run(scenario())
    assert meanwhile < in_all / 2, "the ping waited for the list"


def test_a_request_selects_jobs(shell: Shell) -> None:
    for name in ("sim", "sum", "run"):
        shell.status.publish_jobs([job(len(name) + ord(name[1]))])
    shell.status.publish_jobs([job(1), job(2), job(3, end=shell.clock.now())])
    found = ask(shell, op="jobs", users=["ann"], states=["RUNNING"], names=["job[12]"])
    assert [info["id"] for info in found["jobs"]] == [1, 2]
    assert found["complete"]
    found = ask(shell, op="jobs", names=["job?"], since=0.0, fields=["id", "state"])
    assert found["rows"] == [[1, "RUNNING"], [2, "RUNNING"], [3, "COMPLETED"]]
    assert ask(shell, op="jobs", users=["nobody"])["jobs"] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("users", "ann"),
        ("names", [1]),
        ("names", ["x" * 257]),
        ("users", ["x"] * 101),
        ("states", ["GONE"]),
        ("since", "yesterday"),
        ("since", True),
    ],
)
def test_a_wrong_selection_names_its_field(shell: Shell, field: str, value: Any) -> None:
    from pliant.server.support.user_request_error import UserRequestError

    with pytest.raises(UserRequestError) as caught:
        ask(shell, op="jobs", **{field: value})
    assert caught.value.field == field
