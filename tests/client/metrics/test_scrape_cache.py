"""The server is asked at most once in an interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pliant.client.client_errors import NoServerError
from pliant.client.metrics.scrape_cache import ScrapeCache


class Source:
    """A server that can be away, and a clock."""

    def __init__(self) -> None:
        self.now, self.asked, self.is_away = 0.0, 0, False
        self.reports: list[str] = []
        self.cache = ScrapeCache(
            self.ask, lambda answer: repr(answer).encode(), 5.0, self.reports.append, self.clock
        )

    def clock(self) -> float:
        return self.now

    def ask(self) -> Mapping[str, Any]:
        self.asked += 1
        if self.is_away:
            raise NoServerError("no server")
        return {"n": self.asked}


def test_many_scrapers_cost_one_request() -> None:
    source = Source()
    assert {source.cache.text() for _ in range(50)} == {b"{'n': 1}"}
    source.now = 4.9
    assert source.cache.text() == b"{'n': 1}"
    source.now = 5.0
    assert source.cache.text() == b"{'n': 2}"


def test_a_server_that_is_away_is_reported_once() -> None:
    source = Source()
    source.is_away = True
    for source.now in (0.0, 6.0, 12.0):
        assert source.cache.text() == b"None"
    source.is_away, source.now = False, 18.0
    assert source.cache.text() == b"{'n': 4}"
    assert source.reports == ["no metrics: no server", "the server answers again"]
