"""Job arrays on a real cluster: every task runs once, also if the server is killed meanwhile."""

from __future__ import annotations

import csv
import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from clusterkit.commands import run_command
from clusterkit.programs import PROGRAMS
from clusterkit.shared import running_cluster
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[Cluster]:
    with running_cluster("fcfs", nodes=2) as cluster:
        yield cluster


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_a_killed_server_loses_no_task_and_runs_none_twice(
    cluster: Cluster, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    words = ("/bin/sh", "-c", f"echo $PLIANT_ARRAY_TASK >> {ran}; sleep 0.1")
    number = cluster.client.submit(*words, array="1-60%4", type="uni", stdout="/dev/null")
    wait_until(lambda: len(lines(ran)) >= 5, what="the first tasks")
    cluster.client.cancel(f"{number}_[41-60]")
    cluster.kill("server")
    cluster.up()
    final = cluster.client.wait(number)
    assert Counter(map(int, lines(ran))) == Counter(range(1, 41))
    assert (final.state, final.exit_code) == ("CANCELLED", 0)
    assert final.array is not None
    assert (final.array["ended"], final.array["cancelled"]) == (40, 20)


def test_tasks_have_variables_files_and_names_of_their_own(
    cluster: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "task.sh"
    script.write_text(
        "#!/bin/sh\n#JOB --array 2-8:3 --output out/%A_%a.txt\n"
        "env | grep ^PLIANT_ARRAY_ | sort | cut -d= -f2 | xargs\nexit $PLIANT_ARRAY_TASK\n"
    )
    script.chmod(0o755)
    (tmp_path / "out").mkdir()
    done = run_command("jobsub", "--wait", "--parsable", str(script), cwd=tmp_path)
    number = int(done.out)
    assert done.code == 8
    assert (tmp_path / "out" / f"{number}_5.txt").read_text() == f"3 {number} 8 2 3 5\n"
    task = cluster.client.job(f"{number}_8")
    assert (task.array_job, task.array_task, task.state, task.exit_code) == (number, 8, "FAILED", 8)
    listed = run_command("jobstat", "-O", "id,state", "--no-header", f"{number}_[2,5]")
    assert listed.out.split() == [f"{number}_2", "FAILED", f"{number}_5", "FAILED"]
    charged = run_command("jobacct", str(number), "--csv").out
    assert len(charged.splitlines()) == 4
    assert "job.ended" in {event.kind for event in cluster.client.history(f"{number}_2")}


@pytest.mark.mpi
def test_tasks_that_are_malleable_jobs(cluster: Cluster, tmp_path: Path) -> None:
    array = cluster.client.submit(
        *(sys.executable, str(PROGRAMS / "counter.py"), str(tmp_path)),
        array="1-3",
        sizes="1-2",
        prefer=1,
        type="mpi",
        stdout=str(tmp_path / "%a-%t"),
        record_load_s=0.05,
    )
    second, third = f"{array}_2", f"{array}_3"
    wait_until(lambda: cluster.client.job(third).state == "RUNNING", what="the third task")
    job = cluster.client.job(second).id
    cluster.wait_malleable(job)
    assert run_command("jobctl", "resize", second, "2").code == 0
    cluster.wait_for(job, lambda job: (job.state, job.processors) == ("RUNNING", 2), "its growth")
    assert len(cluster.ranks(job)) == 2
    cluster.kill("server")
    cluster.up()
    cluster.client.cancel(third)
    assert cluster.client.wait(third).state == "CANCELLED"
    (tmp_path / "stop").touch()
    final = cluster.client.wait(array)
    assert (final.state, final.exit_code) == ("CANCELLED", 0)
    assert final.array is not None
    assert final.array["cancelled"] == 1
    files = {path.name: path.read_text() for path in tmp_path.glob("*-*")}
    assert files.keys() >= {"1-0", "2-0", "2-1"}
    check_load_record(tmp_path)


def check_load_record(folder: Path) -> None:
    """Check the rows of the second task, whose second rank joined on some node."""
    found = {
        path.name: list(csv.DictReader(path.read_text().splitlines()))
        for path in folder.glob("2-.load-*.csv")
    }
    assert found.keys() <= {"2-.load-n1.csv", "2-.load-n2.csv"}
    worlds: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in itertools.chain(*found.values()):
        worlds.setdefault((row["run"], row["resize"]), []).append(row)
    assert len(worlds) == 2
    assert ("1", "0") in worlds
    for rows in worlds.values():
        assert float(rows[-1]["user_s"]) > 0
        assert int(rows[-1]["demand_bytes"]) > 1 << 20
        assert rows[-1]["processes"] == "0"
        for name in ("time", "user_s", "system_s", "major_faults", "rchar", "wchar"):
            values = [float(row[name]) for row in rows]
            assert values == sorted(values), name


def test_jobs_after_an_array_and_after_one_of_its_tasks(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    command = f"[ $PLIANT_ARRAY_TASK = 1 ] || while [ ! -e {gate} ]; do sleep 0.05; done"
    client = cluster.client
    array = client.submit("/bin/sh", "-c", command, array="1-3", type="uni", stdout="/dev/null")
    after_all, after_one = (
        client.submit("/bin/true", dependency=what, type="uni", stdout="/dev/null")
        for what in (f"afterok:{array}", f"afterok:{array}_1")
    )
    assert client.wait(after_one).state == "COMPLETED"
    assert client.job(after_all).state == "PENDING"
    gate.touch()
    assert client.wait(after_all).state == "COMPLETED"
