"""The accounting of a job that is resized while the server is killed and started again."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from clusterkit.cluster import Cluster
from clusterkit.commands import run_command
from clusterkit.counter import Counter

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(300)]


def phases(*ids: int, options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    done = run_command("pliant", "accounting", *map(str, ids), "--json", *options)
    assert done.code == 0, done.err
    found: list[dict[str, Any]] = json.loads(done.out)
    return found


def test_phases_are_exact_over_resizes_and_restarts(cluster: Cluster, counter: Counter) -> None:
    number = counter.id
    (first,) = phases(number)
    assert (first["processors"], first["end"]) == (2, None)
    cluster.client.resize(number, 4)
    cluster.wait_for(number, lambda job: job.processors == 4, "4 processors")
    cluster.kill("server")
    cluster.up()
    cluster.wait_malleable(number)
    cluster.client.resize(number, 1)
    cluster.wait_for(number, lambda job: job.processors == 1, "1 processor")
    shares = json.loads(run_command("pliant", "share", "--json").out)["shares"]
    assert [row["processors"] for row in shares] == [1]
    cluster.client.cancel(number)
    final = cluster.client.wait(number)
    rows = phases(number)
    assert [row["processors"] for row in rows] == [2, 4, 1]
    assert (rows[0]["start"], rows[-1]["end"]) == (final.start, final.end)
    # No time is missing between two phases, and none counts twice.
    assert all(one["end"] == other["start"] for one, other in pairwise(rows))
    used = sum((row["end"] - row["start"]) * row["processors"] for row in rows)
    (total,) = phases(number, options=("--sum", "job"))
    assert total["processor_s"] == pytest.approx(used)
    shares = json.loads(run_command("pliant", "share", "--json").out)["shares"]
    assert shares[0]["seconds"] == pytest.approx(used, rel=0.01)
    assert shares[0]["processors"] == 0
