"""The dashboard next to a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.client.client_errors import ClientError
from pliant.client.cluster.dashboard_process import DashboardProcess

pytestmark = pytest.mark.cluster


def test_it_tells_its_addresses_and_ends(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    dashboard = DashboardProcess(str(tmp_path), str(tmp_path))
    try:
        assert [line.split("#")[0][-1] for line in dashboard.addresses()] == ["/", "/"]
    finally:
        dashboard.stop()


def test_its_error_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ClientError, match="no dashboard: see "):
        DashboardProcess(str(tmp_path), str(tmp_path)).addresses()
