"""SIGHUP: the server goes on, with its log under its name and the settings that can change."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serverkit import SLOW, Server
from testkit import wait_until

pytestmark = pytest.mark.cluster


def configure(server: Server, **settings: Any) -> None:
    known = {"state_dir": str(server.state), "run_dir": str(server.run), **SLOW, **settings}
    config = server.state.parent / "server.yaml"
    config.write_text(json.dumps(known))


def hang_up(server: Server) -> str:
    """Send SIGHUP and return what the log says of it."""
    assert server.process is not None
    log = server.state.parent / "server.log"
    before = log.read_text().count("SIGHUP") if log.exists() else 0
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: log.exists() and log.read_text().count("SIGHUP") > before)
    return [line for line in log.read_text().splitlines() if "SIGHUP" in line][before]


def test_the_log_is_under_its_name_again(server: Server) -> None:
    log = server.state.parent / "server.log"
    mode = log.stat().st_mode
    log.rename(log.with_suffix(".1"))
    hang_up(server)
    assert log.stat().st_mode == mode
    node = server.controller("n1", 2).welcome()
    wait_until(lambda: "node n1" in log.read_text())
    assert "node n1" not in log.with_suffix(".1").read_text()
    node.close()


def test_a_log_that_was_renamed_is_noticed_without_a_signal(server: Server) -> None:
    log = server.state.parent / "server.log"
    log.rename(log.with_suffix(".1"))

    def said() -> bool:
        server.controller("n1", 2).welcome().close()
        return log.exists() and "node n1" in log.read_text()

    wait_until(said)


def test_settings_that_can_change_do(server: Server) -> None:
    configure(server, kill_grace_s=0.5, lease_s=2000.0)
    said = hang_up(server)
    assert "new settings: kill_grace_s (5.0 -> " in said
    log = server.log()
    assert "changed after the next start: lease_s" in log
    node = server.controller("n1", 2).welcome()
    with server.user() as user:
        number = user.submit()
        start = node.find("start_world")
        assert start.kill_grace_s == 0.5
        user.do("cancel", ids=[number])
        assert node.find("kill").grace_s == 0.5
        node.exit(start)
    node.close()


@pytest.mark.parametrize("text", ["kill_grace_s: -1", "a: [", 'state_dir: "a\\0"'])
def test_a_wrong_configuration_changes_nothing(
    make_server: Callable[..., Server], text: str
) -> None:
    server = make_server().start()
    config: Path = server.state.parent / "server.yaml"
    right = config.read_text()
    config.write_text(text)
    assert hang_up(server).endswith("nothing is changed")
    config.write_text(right)
    assert hang_up(server).endswith("new settings: none")
    assert server.stop() == 0
