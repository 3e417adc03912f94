"""The request ``metrics``, as ``pliant metrics`` shows it: the server may leave and return."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from serverkit import Server
from testkit import wait_until

pytest.importorskip("prometheus_client")
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.cluster

Samples = dict[str, float]


@contextmanager
def exporter(run: Path, log: Path) -> Iterator[str]:
    """Run ``pliant metrics``; yield its address."""
    command = [sys.executable, "-m", "pliant.client.commands.cli", "metrics"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--port", "0", "--interval", "0.05"],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PLIANT_RUN_DIR": str(run)},
        )
    try:
        wait_until(lambda: "metrics are at http" in log.read_text(), what="the address")
        found = re.search(r"http://\S+", log.read_text())
        assert found is not None
        yield found[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def scrape(address: str) -> Samples:
    """Return the samples by name and labels, such as ``pliant_jobs state=PENDING``."""
    with urlopen(address, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    return {
        " ".join([sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items()))]): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_follow_the_cluster_and_its_server(server: Server, tmp_path: Path) -> None:
    node = server.controller(slots=4).welcome()
    with server.user() as user, exporter(server.run, tmp_path / "log") as address:
        user.submit(sizes="2")
        user.submit(sizes="4", hold=True)
        assert not user.ask("jobs", ids="x")["ok"]
        assert not user.ask("no such operation")["ok"]
        wait_until(
            lambda: scrape(address).get("pliant_processors_held") == 2, what="the start of a job"
        )
        found = scrape(address)
        expected = {
            "pliant_up": 1,
            "pliant_server_generation": 1,
            "pliant_jobs state=HELD": 1,
            "pliant_jobs state=PENDING": 0,
            "pliant_nodes state=UP": 1,
            "pliant_node_streams": 1,
            "pliant_processors": 4,
            "pliant_processors_usable": 4,
            "pliant_node_processors node=n1": 4,
            "pliant_node_processors_held node=n1": 2,
            "pliant_job_starts_total": 1,
            "pliant_jobs_ended_total state=COMPLETED": 0,
            "pliant_request_seconds_count operation=submit": 2,
            "pliant_requests_refused_total kind=invalid operation=jobs": 1,
            "pliant_requests_refused_total kind=invalid operation=unknown": 1,
        }
        assert {key: found.get(key) for key in expected} == expected
        assert found["pliant_commit_transactions_count"] > 0
        assert found["pliant_commit_rows_sum"] >= found["pliant_commit_transactions_sum"] > 0
        assert any(key.startswith("pliant_scheduling_pass_seconds_count") for key in found)
        assert not any(re.search(r"\b(job|user)=", key) for key in found)

        server.stop(signal.SIGKILL)
        wait_until(lambda: scrape(address) == {"pliant_up": 0}, what="the end of the server")
        node.close()
        server.start()
        wait_until(lambda: scrape(address)["pliant_up"] == 1, what="the new server")
        assert scrape(address)["pliant_server_generation"] == 2
    assert "no metrics: " in (tmp_path / "log").read_text()
