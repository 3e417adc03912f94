from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pliant.client.client_errors import (
    LostServerError,
    NoServerError,
    RequestError,
    SilentServerError,
)
from pliant.client.connection import Connection
from pliant.client.reconnecting import send_job


def test_many_requests_on_one_connection(server: Any) -> None:
    server.answers["ping"] = lambda request: {"pid": 7, "echo": request}
    with Connection() as link:
        assert link.request("ping", text="a")["echo"] == {"op": "ping", "text": "a"}
        assert link.request("ping")["pid"] == 7
    assert len(server.requests) == 2


def test_bytes_that_are_no_text_survive(server: Any) -> None:
    name = os.fsdecode(b"caf\xe9\n\xff")
    server.answers["submit"] = lambda request: {"name": request["name"]}
    with Connection() as link:
        assert os.fsencode(link.request("submit", name=name)["name"]) == b"caf\xe9\n\xff"


def test_a_refusal_carries_kind_field_and_message(server: Any) -> None:
    server.refuse("submit", "too many processors", kind="invalid", field="sizes")
    with Connection() as link, pytest.raises(RequestError, match="too many processors") as caught:
        link.request("submit")
    assert (caught.value.kind, caught.value.field) == ("invalid", "sizes")


@pytest.mark.parametrize("answer", [b"nonsense\n", b"[1]\n"])
def test_an_answer_that_is_no_object(server: Any, answer: bytes) -> None:
    server.answers["ping"] = {"raw": answer}
    with Connection() as link, pytest.raises(RequestError, match="answer is not"):
        link.request("ping")


def test_a_server_that_leaves_before_it_answers(server: Any) -> None:
    server.answers["ping"] = {"raw": b"CLOSE"}
    with Connection() as link, pytest.raises(NoServerError, match="unknown"):
        link.request("ping")


def test_a_server_that_does_not_answer(server: Any) -> None:
    server.answers["ping"] = {"raw": b"no line yet"}
    with Connection(timeout_s=0.1) as link, pytest.raises(NoServerError, match=r"within 0\.1 s"):
        link.request("ping")


@pytest.mark.parametrize("raw", [b"no line yet", b"CLOSE"])
def test_a_read_that_is_not_answered_has_carried_out_nothing(server: Any, raw: bytes) -> None:
    server.answers["jobs"] = {"raw": raw}
    with Connection(timeout_s=0.1) as link, pytest.raises(LostServerError) as caught:
        link.request("jobs")
    assert "carried out" not in str(caught.value)


def test_a_submission_waits_once_for_a_server_that_does_not_answer(server: Any) -> None:
    server.answers["submit"] = {"raw": b"no line yet"}
    with (
        Connection(timeout_s=0.1) as link,
        pytest.raises(SilentServerError, match=r"within 0\.1 s .* carried out is unknown"),
    ):
        send_job(link, {}, reconnect_s=60.0)
    assert len(server.requests) == 1


def test_a_long_answer(server: Any) -> None:
    server.answers["jobs"] = {"jobs": ["x" * 1000] * 1000}
    with Connection() as link:
        assert len(link.request("jobs")["jobs"]) == 1000


def test_no_server(state_dir: Path) -> None:
    with Connection() as link, pytest.raises(NoServerError, match="pliant up"):
        link.request("ping")
    with Connection(str(state_dir / "nowhere")) as link, pytest.raises(NoServerError):
        link.request("ping")


def test_a_socket_path_longer_than_107_bytes(server: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="pliant-long-") as base:
        deep = Path(base, *["directory-with-a-long-name"] * 8)
        deep.parent.mkdir(parents=True)
        deep.symlink_to(server.run)
        with Connection(str(deep)) as link:
            assert link.request("ping") == {"ok": True}


def test_requests_are_one_line(server: Any) -> None:
    with Connection() as link:
        link.request("ping", text="two\nlines")
    assert json.dumps(server.last) == '{"op": "ping", "text": "two\\nlines"}'
