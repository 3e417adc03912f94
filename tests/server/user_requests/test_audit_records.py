"""Refused requests leave a trace: who, when, what and why; bounded."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable

import pytest

from pliant.server.user_requests import audit_records
from serverkit import Server, job_request
from testkit import wait_until

pytestmark = pytest.mark.cluster


def test_who_asked_for_what_and_why_not(server: Server) -> None:
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        assert not user.ask("submit", job=job_request(sizes="999", argv=["prog", "secret"]))["ok"]
        assert not user.ask("submit", job=job_request(profit="1"))["ok"]
        assert not user.ask("jobs", ids="x")["ok"]  # a malformed look is nobody's concern
        assert not user.ask("query", job=job_request(sizes="x"))["ok"]
        wait_until(lambda: len(user.do("refusals")["events"]) == 2, what="both are stored")
        wide, poor = user.do("refusals")["events"]
        assert "999 can never be satisfied" in wide["text"]
        data = wide["data"]
        assert (data["operation"], data["sizes"], data["program"]) == ("submit", "999", "prog")
        assert data["uid"] >= 0
        assert "secret" not in str(wide)
        assert poor["data"]["field"] == "profit"
        assert abs(wide["time"] - user.do("jobs", ids=[])["now"]) < 600
    server.stop(signal.SIGKILL)
    node.close()
    server.start()
    with server.user() as user:
        assert len(user.do("refusals")["events"]) == 2


def test_they_are_bounded(make_server: Callable[..., Server]) -> None:
    server = make_server().start()
    node = server.controller(slots=4).welcome()
    asked = int(audit_records.AT_ONCE) + 30
    with server.user() as user:
        for _ in range(asked):
            assert not user.ask("submit", job=job_request(sizes="999"))["ok"]
        wait_until(
            lambda: len(user.do("refusals")["events"]) >= audit_records.AT_ONCE,
            what="they are stored",
        )
        assert len(user.do("refusals")["events"]) < asked
    node.close()
    server.stop()
    with sqlite3.connect(server.state / "pliant.db") as database:
        row = "INSERT INTO job_event (time, kind, text, data) VALUES (1, ?, 'x', '{\"uid\": 77}')"
        database.executemany(row, [("request.refused",)] * 2000 + [("other",)] * 3)
    server.start()
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        assert not user.ask("submit", job=job_request(sizes="999"))["ok"]
        wait_until(
            lambda: len(user.do("refusals")["events"]) <= audit_records.KEPT,
            what="old ones are dropped",
        )
        assert "999" in user.do("refusals")["events"][-1]["text"]
        assert [e["kind"] for e in user.do("history")["events"]].count("other") == 3
    node.close()


def test_the_audit_names_submissions_changes_and_refusals(server: Server) -> None:
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        job = user.submit(hold=True)
        assert not user.ask("submit", job=job_request(sizes="999"))["ok"]
        user.do("cancel", ids=[job, 99])
        user.do("drain", node="n1", reason="fan")
        wait_until(lambda: len(user.do("audit")["events"]) == 5, what="all are stored")
        found = {
            (line["operation"], line["result"], line["job"], line["data"].get("ids"))
            for line in user.do("audit")["events"]
        }
        assert found == {
            ("submit", "done", job, None),
            ("submit", "refused", None, None),
            ("cancel", "done", None, f"[{job}]"),
            ("cancel", "refused", None, "[99]"),
            ("drain", "done", None, None),
        }
        assert not user.do("audit", limit=2)["complete"]
        assert user.do("audit", since=1e12)["events"] == []
    node.close()
