from __future__ import annotations

import pytest

from pliant.server.authentication.refused_handshakes import INTERVAL_S, RefusedHandshakes


def test_refused_connections_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    handshakes = RefusedHandshakes("port of the nodes")
    for _ in range(5):
        handshakes.begin()
    handshakes.count_opened_stream()
    handshakes.log_failures(0.0)
    assert caplog.messages == [], "they may be in progress"
    for now in range(1, 40):
        handshakes.log_failures(now * INTERVAL_S / 10)
    (logged,) = caplog.messages
    assert "4 connections" in logged
    handshakes.begin()
    handshakes.log_failures(1000.0)
    handshakes.log_failures(2000.0)
    assert "1 connections" in caplog.messages[-1]


def test_nodes_that_register_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    handshakes = RefusedHandshakes("port of the nodes")
    for now in range(10):
        handshakes.begin()
        handshakes.count_opened_stream()
        handshakes.log_failures(now * INTERVAL_S)
    assert caplog.messages == []
