"""The web application: who may read and act, and what it refuses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx")
testclient = pytest.importorskip("starlette.testclient")

from pliant.client.client_errors import RequestError  # noqa: E402
from pliant.client.dashboard.feed import MAX_WAITING_BYTES, Browser, Feed  # noqa: E402
from pliant.client.dashboard.server_requests import ServerRequests, read_output  # noqa: E402
from pliant.client.dashboard.sessions import CSRF_HEADER, Sessions  # noqa: E402
from pliant.client.dashboard.web_app import MAX_BODY, Dashboard  # noqa: E402

BASE = "http://127.0.0.1:8642"


class FakeServer:
    """Answers requests to the daemon, and remembers them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None

    def request(self, op: str, **fields: Any) -> dict[str, Any]:
        self.asked.append((op, fields))
        if self.error is not None:
            raise self.error
        if op == "cancel":
            return {"results": [{"id": fields["ids"][0], "ok": True}]}
        if op == "strategies":
            return {"strategy": "fcfs", "options": {}, "strategies": [{"name": "fcfs"}]}
        return {"message": "done", "events": [], "text": ["because"], "facts": {}}

    def close(self) -> None:
        pass


class Site:
    """The application with a fake daemon behind it."""

    def __init__(self) -> None:
        self.server, self.sessions, self.feed = FakeServer(), Sessions(), Feed(None)
        self.now = 0.0
        requests = ServerRequests(None, clock=lambda: self.now)
        requests._link = self.server  # type: ignore[assignment]
        app = Dashboard(self.feed, requests, self.sessions).app()
        self.client = testclient.TestClient(app, base_url=BASE)
        self.feed.state.user = "ann"

    def login(self, role: Any = "operator") -> dict[str, str]:
        """Log in; return the headers of an action."""
        answer = self.client.post("/api/login", json={"token": self.sessions.tokens[role]})
        assert answer.status_code == 200
        return {CSRF_HEADER: answer.json()["csrf"]}


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.client.close()


READING = ["/api/session", "/api/snapshot", "/api/jobs/1/history", "/api/jobs/1/why"]


@pytest.mark.parametrize("path", [*READING, "/api/stream", "/api/jobs/1/output"])
def test_nobody_reads_without_a_session(site: Site, path: str) -> None:
    assert site.client.get(path).status_code == 401


@pytest.mark.parametrize("path", READING)
def test_a_viewer_reads(site: Site, path: str) -> None:
    assert site.client.get(path, headers=site.login("viewer")).status_code == 200


@pytest.mark.parametrize("path", [*READING, "/api/stream", "/api/jobs/1/output"])
def test_a_cookie_alone_opens_nothing(site: Site, path: str) -> None:
    headers = site.login()
    for given in ([], [(CSRF_HEADER.encode(), b"wrong")], [(CSRF_HEADER.encode(), b"\xe4")]):
        answer = site.client.get(path, headers=given)
        assert answer.status_code == 401
        assert headers[CSRF_HEADER] not in answer.text
    assert headers[CSRF_HEADER] not in site.client.get("/api/session", headers=headers).text


def test_a_browser_can_use_several_dashboards_of_a_host(site: Site) -> None:
    other = Site()
    headers = site.login()
    other.client.cookies.update(site.client.cookies)
    others = other.login("viewer")
    site.client.cookies.update(other.client.cookies)
    assert site.client.get("/api/session", headers=headers).json()["role"] == "operator"
    assert other.client.get("/api/session", headers=others).json()["role"] == "viewer"
    other.client.close()


def test_a_wrong_token_gives_no_session(site: Site) -> None:
    assert site.client.post("/api/login", json={"token": "x"}).status_code == 401
    assert site.client.get("/api/session").status_code == 401


def test_the_cookie_is_not_for_scripts_or_other_sites(site: Site) -> None:
    token = site.sessions.tokens["viewer"]
    cookie = site.client.post("/api/login", json={"token": token}).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_an_operator_acts(site: Site) -> None:
    headers = site.login()
    for action in ("hold", "cancel"):
        answer = site.client.post(f"/api/jobs/7/{action}", json={}, headers=headers)
        assert answer.status_code == 200
    site.client.post("/api/jobs/7/resize", json={"size": 3, "op": "stop"}, headers=headers)
    site.client.post("/api/nodes/n1/drain", json={"reason": "fan"}, headers=headers)
    assert site.server.asked == [
        ("hold", {"id": 7}),
        ("cancel", {"ids": [7]}),
        ("resize", {"id": 7, "size": 3}),
        ("drain", {"node": "n1", "reason": "fan"}),
    ]


def test_actions_that_are_refused_do_not_reach_the_daemon(site: Site) -> None:
    viewer = site.login("viewer")
    assert site.client.post("/api/jobs/7/hold", json={}, headers=viewer).status_code == 403
    headers = site.login()
    foreign = [
        {},
        {CSRF_HEADER: "wrong"},
        {**headers, "origin": "https://evil.example"},
        {**headers, "sec-fetch-site": "cross-site"},
    ]
    for each in foreign:
        assert site.client.post("/api/jobs/7/hold", json={}, headers=each).status_code == 403
    form = {**headers, "content-type": "application/x-www-form-urlencoded"}
    assert site.client.post("/api/jobs/7/hold", content="a=b", headers=form).status_code == 415
    for path in ("/api/jobs/7/stop", "/api/nodes/n1/remove"):
        assert site.client.post(path, json={}, headers=headers).status_code == 404
    long = {"reason": "x" * MAX_BODY}
    assert site.client.post("/api/nodes/n1/drain", json=long, headers=headers).status_code == 413
    assert site.client.get("/api/jobs/7/hold").status_code in (404, 405)
    assert site.server.asked == []


def test_a_foreign_host_name_is_refused(site: Site) -> None:
    headers = {**site.login(), "host": "evil.example:8642"}
    answer = site.client.get("/api/snapshot", headers=headers)
    assert answer.status_code == 421


def test_the_message_of_the_daemon_is_passed_on(site: Site) -> None:
    headers = site.login()
    site.server.error = RequestError("job 7 is not held", kind="refused")
    answer = site.client.post("/api/jobs/7/release", json={}, headers=headers)
    assert (answer.status_code, answer.json()) == (403, {"error": "job 7 is not held"})


def test_the_page_forbids_foreign_scripts(site: Site) -> None:
    answer = site.client.get("/")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "http" not in answer.text.replace("https://www.w3.org", "")


def test_many_browsers_ask_the_daemon_once_a_second(site: Site) -> None:
    headers = site.login("viewer")
    for _ in range(5):
        site.client.get("/api/jobs/1/why", headers=headers)
    assert len(site.server.asked) == 1
    site.now = 1.0
    site.client.get("/api/jobs/1/why", headers=headers)
    assert len(site.server.asked) == 2


def test_output_of_other_users_is_not_read(site: Site, tmp_path: Path) -> None:
    headers = site.login("viewer")
    file = tmp_path / "out"
    file.write_text("secret")
    site.feed.state.rows[1] = {"user": "bob", "stdout": str(file)}
    site.feed.state.rows[2] = {"user": "ann", "stdout": str(file)}
    for job, text in ((1, None), (2, "secret")):
        answer = site.client.get(f"/api/jobs/{job}/output", headers=headers)
        assert answer.json()["text"] == text


def test_only_own_regular_files_are_read(tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "out", tmp_path / "link", tmp_path / "pipe"
    file.write_bytes(b"x" * 100_000 + b"end\xff")
    link.symlink_to(file)
    os.mkfifo(pipe)
    text = read_output(str(file), os.getuid())
    assert text is not None
    assert text.endswith("end\N{REPLACEMENT CHARACTER}")
    assert len(text) < 20_000
    assert read_output(str(file), os.getuid() + 1) is None
    for path in (link, pipe, tmp_path, tmp_path / "missing", Path("bad\0name")):
        assert read_output(str(path), os.getuid()) is None


def test_a_browser_that_is_far_behind_loads_the_state_again() -> None:
    browser = Browser()
    for _ in range(3):
        browser.put(b"x" * (MAX_WAITING_BYTES // 2 - 1))
    assert browser._waiting[0].startswith(b"event: reset")
    assert sum(map(len, browser._waiting)) <= MAX_WAITING_BYTES


def test_only_a_session_that_may_act_changes_the_strategy(site: Site) -> None:
    headers = site.login("viewer")
    assert site.client.get("/api/strategies", headers=headers).json()["strategy"] == "fcfs"
    body = {"strategy": "sjf", "options": {"order": "x"}, "op": "stop"}
    assert site.client.post("/api/strategy", json=body, headers=headers).status_code == 403
    headers = site.login()
    answer = site.client.post("/api/strategy", json=body, headers=headers)
    assert answer.json() == {"message": "done"}
    assert site.server.asked[-1] == ("strategy", {"strategy": "sjf", "options": {"order": "x"}})
    site.server.error = RequestError("only an operator may do this", kind="refused")
    assert site.client.post("/api/strategy", json=body, headers=headers).status_code == 403
