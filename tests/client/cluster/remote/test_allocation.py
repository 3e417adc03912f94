from __future__ import annotations

import math

import pytest

from pliant.client.cluster.host_list import Host
from pliant.client.cluster.remote.allocation import (
    AllocationError,
    parse_repeated,
    parse_time_left,
    read_allocation,
    slots_of_nodes,
)

JOB = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[1-2]"}


def test_nodes_have_as_many_slots_as_tasks() -> None:
    env = JOB | {"SLURM_NTASKS": "6", "SLURM_TASKS_PER_NODE": "4,2"}
    found = read_allocation(env)
    assert found.job == "17"
    assert found.hosts == (Host("n1", slots=4), Host("n2", slots=2))


def test_without_tasks_the_processors_are_divided() -> None:
    env = {"SLURM_JOB_CPUS_PER_NODE": "8(x2),3", "SLURM_CPUS_PER_TASK": "4"}
    assert slots_of_nodes(env) == [2, 2, 1]
    assert slots_of_nodes({"SLURM_JOB_CPUS_PER_NODE": "8"}) == [8]


def test_an_option_replaces_the_slots_of_slurm() -> None:
    assert [host.slots for host in read_allocation(JOB, 5).hosts] == [5, 5]


@pytest.mark.parametrize(
    ("env", "word"),
    [
        ({}, "not inside an allocation"),
        ({"SLURM_JOB_ID": "1"}, "not inside an allocation"),
        (JOB | {"SLURM_STEP_NUM_TASKS": "2"}, "several tasks"),
        (JOB, "SLURM_JOB_CPUS_PER_NODE"),
        (JOB | {"SLURM_JOB_CPUS_PER_NODE": "4"}, "--slots"),
        (JOB | {"SLURM_JOB_CPUS_PER_NODE": "4(x2)", "SLURM_CPUS_PER_TASK": "0"}, "CPUS_PER_TASK"),
        (JOB | {"SLURM_JOB_NODELIST": "n["}, "list of nodes"),
    ],
)
def test_environments_that_are_refused(env: dict[str, str], word: str) -> None:
    with pytest.raises(AllocationError, match=word):
        read_allocation(env)


def test_repeated_numbers() -> None:
    assert parse_repeated("X", "4(x2),8") == [4, 4, 8]
    for wrong in ("", "4(x)", "0", "4,,5", "-1"):
        with pytest.raises(ValueError, match="X="):
            parse_repeated("X", wrong)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1:54\n", 114.0),
        ("0:00", 0.0),
        ("2:03:04", 7384.0),
        ("3-00:00:01", 259201.0),
        ("UNLIMITED", math.inf),
    ],
)
def test_times_that_are_left(text: str, seconds: float) -> None:
    assert parse_time_left(text) == seconds


def test_what_is_no_time() -> None:
    for wrong in ("", "INVALID", "soon"):
        with pytest.raises(ValueError, match="no time"):
            parse_time_left(wrong)
