"""Errors of ``pliant metrics``; tests/server/user_requests/test_metrics.py scrapes it."""

from __future__ import annotations

import socket

import pytest

from pliant.client.metrics.metrics_command import main


def test_a_taken_port_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["--port", str(taken.getsockname()[1])]) == 1
    assert "already in use; name another --address or --port" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--port", "x"], ["--port", "65536"], ["--interval", "0"]])
def test_wrong_usage(options: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == 2
