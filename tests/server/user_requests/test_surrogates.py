"""Texts that no file and no protocol can carry: the field is named, and nothing breaks."""

from __future__ import annotations

from typing import Any

import pytest

from serverkit import Server, job_request

pytestmark = pytest.mark.cluster

LONE = "a\ud800b"


@pytest.mark.parametrize(
    "job",
    [
        {"argv": [LONE]},
        {"env": {"A": LONE}},
        {"env": {LONE: "a"}},
        {"name": LONE},
        {"cwd": f"/{LONE}"},
        {"stdin": LONE},
        {"stdout": LONE},
        {"stderr": LONE},
        {"sizes": LONE},
        {"type": LONE},
        {"when_cut_off": LONE},
        {"key": LONE},
        {"key": "\udc80"},
        {"open_mode": LONE},
        {LONE: 1},
    ],
)
def test_half_a_character_in_a_submission_is_named(
    refusing_server: Server, job: dict[str, Any]
) -> None:
    with refusing_server.user() as user:
        answer = user.ask("submit", job=job_request(**job))
        assert not answer["ok"]
        assert answer["error"]["kind"] == "invalid"
        (field,) = job
        assert field == LONE or field in answer["error"]["message"]
    assert "Traceback" not in refusing_server.log()


@pytest.mark.parametrize(
    "request_",
    [
        {"op": LONE},
        {"op": "drain", "node": LONE},
        {"op": "drain", "node": "n1", "reason": LONE},
        {"op": "resume", "node": LONE},
        {"op": "remove", "node": LONE},
        {"op": "jobs", "user": LONE},
        {"op": "resize", "id": 1, "size": 1, "release": [LONE]},
        {"op": "history", "id": LONE},
        {"op": "jobs", LONE: 1},
    ],
)
def test_half_a_character_in_a_request_is_no_fault_of_the_server(
    refusing_server: Server, request_: dict[str, Any]
) -> None:
    with refusing_server.user() as user:
        fields = {name: value for name, value in request_.items() if name != "op"}
        answer = user.ask(request_["op"], **fields)
        assert answer["ok"] or answer["error"]["kind"] != "internal", answer
        assert user.do("nodes")["nodes"]
    assert "Traceback" not in refusing_server.log()
