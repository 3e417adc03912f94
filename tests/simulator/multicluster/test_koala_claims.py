"""What follows from KOALA's policies on its testbed, with the assumptions of the experiments."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from pliant.simulator import Result
from pliant.simulator.experiments.definition.reading import find_experiment
from pliant.simulator.experiments.running.multicluster_tasks import read_settings
from pliant.simulator.inputs.models import make
from pliant.simulator.multicluster.grid_jobs import GridJob
from pliant.simulator.multicluster.simulate_clusters import simulate_clusters

SEED = 1


def settings_of(experiment: str, **axes: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings and the parameters of the jobs of a row of an experiment."""
    cell = next(iter(find_experiment(experiment).matching(axes)))
    return cell.spec["multicluster"], cell.spec.get("parameters", {})


@cache
def measure(experiment: str, **axes: object) -> Result:
    given, parameters = settings_of(experiment, **axes)
    model = make("koala", {**parameters, "seed": SEED})
    return simulate_clusters([GridJob(job) for job in model.jobs], read_settings(given, SEED))


def test_jobs_that_run_alone_have_the_same_schedule_under_both_policies() -> None:
    for kind in ("Wm", "Wmr"):
        runs = [measure("koala-7", run=f"{policy}/{kind}", cap=272) for policy in ("FPSMA", "EGS")]
        first, second = (
            [(job.id, job.start, job.end, job.resizes) for job in each.jobs] for each in runs
        )
        assert first == second


def test_nothing_shrinks_if_running_jobs_come_first() -> None:
    for policy in ("FPSMA", "EGS"):
        axes = {"policy": policy, "clusters": "one:46", "gap": 30, "rigid": 0}
        assert measure("koala-ideal", precedence="pra", **axes).metrics["shrinks"] == 0
        assert measure("koala-ideal", precedence="pwa", **axes).metrics["shrinks"] > 0


def test_on_one_small_cluster_only_running_jobs_first_lets_others_wait() -> None:
    for policy in ("FPSMA", "EGS"):
        axes = {"policy": policy, "clusters": "one:46", "gap": 120, "rigid": 0}
        assert measure("koala-ideal", precedence="pra", **axes).metrics["mean_wait_s"] > 0
        assert measure("koala-ideal", precedence="pwa", **axes).metrics["mean_wait_s"] == 0


def test_under_a_cap_equal_growth_uses_more_processors_and_is_faster() -> None:
    fpsma = measure("koala-8", run="FPSMA/W'm", cap=100).metrics
    egs = measure("koala-8", run="EGS/W'm", cap=100).metrics
    assert egs["used_nodes"] > fpsma["used_nodes"]
    assert egs["mean_execution_s"] < fpsma["mean_execution_s"]
    assert egs["grows"] > fpsma["grows"]


@pytest.mark.parametrize("age", [0, 300])
def test_old_information_does_no_harm_if_nobody_else_uses_the_clusters(age: int) -> None:
    metrics = measure("koala-age", policy="EGS", local_load=0, snapshot_s=age).metrics
    assert (metrics["failed_claims"], metrics["lost_stubs"]) == (0, 0)


def test_growth_costs_local_users_time() -> None:
    greedy = measure("koala-shared", policy="EGS", threshold=0).metrics
    none = measure("koala-shared", policy="EGS", threshold=1000).metrics
    assert greedy["local_jobs"] == none["local_jobs"] > 100
    assert greedy["local_wait_s"] > none["local_wait_s"]
    assert greedy["mean_execution_s"] < none["mean_execution_s"]
