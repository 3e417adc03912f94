"""What a node says about the containment of jobs, and that the probe leaves no group."""

from __future__ import annotations

import os

import pytest

from pliant.nodectl.host import cgroup, containment
from pliant.nodectl.host.cgroup_hierarchies import base
from pliant.nodectl.host.containment import SlotCpus, describe, find_cgroup_controllers

CPUS = sorted(os.sched_getaffinity(0))
LIST = ",".join(map(str, CPUS))


def test_a_processor_of_the_cluster_has_the_cpus_of_its_slot() -> None:
    slots = SlotCpus(len(CPUS), LIST)
    slots.first_processor = 10
    found = [slots.cpus_of(10 + slot) for slot in range(len(CPUS))]
    assert sorted(cpu for cpus in found for cpu in cpus) == CPUS
    assert slots.union([10, 10 + len(CPUS) - 1]) == sorted({*found[0], *found[-1]})
    assert slots.cpus_of(9) == slots.cpus_of(10 + len(CPUS)) == ()


def test_a_node_with_more_slots_than_cpus_binds_nothing_and_says_so() -> None:
    slots = SlotCpus(len(CPUS) + 1)
    assert slots.cpus_of(0) == ()
    assert (
        describe(slots, find_cgroup_controllers(), bind=True).cpus
        == f"not bound: {len(CPUS) + 1} slots, but {len(CPUS)} CPUs"
    )


def test_a_node_says_that_binding_is_switched_off() -> None:
    assert "switched off" in describe(SlotCpus(1), find_cgroup_controllers(), bind=False).cpus


def test_without_groups_each_substitute_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containment, "base", lambda _: None)
    found = describe(SlotCpus(1), find_cgroup_controllers(), bind=True)
    assert found.cpus.startswith("affinity only")
    assert found.memory.startswith("watched")
    assert found.processes.startswith("counted")
    assert found.devices.startswith("visibility only")


@pytest.mark.skipif(base("memory") is None, reason="no group with a limit of memory here")
def test_the_probe_finds_the_version_and_removes_its_groups() -> None:
    where = base("memory")
    assert where is not None
    assert (
        describe(SlotCpus(1), find_cgroup_controllers(), bind=True).memory
        == f"cgroup v{where.version}"
    )
    mark = f"{cgroup.SHIM_PREFIX}{os.getpid()}-"
    names = [name for b in cgroup.bases() for name in os.listdir(b.folder)]
    assert not [name for name in names if name.startswith(mark)]


def test_a_sweep_of_another_controller_leaves_the_group_of_the_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if base("cpuset") is None:
        pytest.skip("no cpuset can be made here")
    make = cgroup.make_group

    def make_and_sweep(folder: str) -> bool:
        made = make(folder)
        cgroup.sweep()
        return made and os.path.isdir(folder)

    monkeypatch.setattr(cgroup, "make_group", make_and_sweep)
    assert describe(SlotCpus(1), find_cgroup_controllers(), bind=True).cpus.startswith("cpuset")
