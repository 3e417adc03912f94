from __future__ import annotations

from pathlib import Path

import pytest

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.cluster.cluster_spec import ClusterSpec, RemoteSpec, load_spec, save_spec
from pliant.client.cluster.host_list import Host
from pliant.client.cluster.up_options import requested_spec, up_parser

HOSTS = RemoteSpec((Host("n1", "n1"), Host("n2", "n2")))


def requested(*words: str, known: ClusterSpec | None = None) -> ClusterSpec:
    return requested_spec(up_parser().parse_args(words), known or ClusterSpec())


def test_hosts_get_the_slots_of_the_option_unless_they_have_their_own(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a slots=8\nb\n")
    found = requested("--hosts", str(tmp_path / "hosts"), "--slots", "3", "--interface", "ib0")
    assert found.remote is not None
    assert found.remote.hosts == (Host("a", "a", 8), Host("b", "b", 3))
    assert (found.remote.interface, found.nodes, found.node_names) == ("ib0", 2, ["a", "b"])


def test_without_options_the_hosts_stay() -> None:
    known = ClusterSpec(nodes=2, remote=HOSTS)
    assert requested(known=known) == known
    changed = requested("--address", "head", known=known)
    assert changed.remote is not None
    assert (changed.remote.hosts, changed.remote.address) == (HOSTS.hosts, "head")


def test_nodes_on_this_machine_replace_hosts() -> None:
    assert requested("--nodes", "2", known=ClusterSpec(remote=HOSTS)).remote is None


def test_an_allocation_is_not_used_again() -> None:
    gone = ClusterSpec(remote=RemoteSpec(HOSTS.hosts, slurm_job="17"))
    with pytest.raises(UsageError, match="allocation 17"):
        requested(known=gone)
    assert requested("--nodes", "1", known=gone).remote is None


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--hosts", "n1", "--nodes", "2"], "--nodes"),
        (["--hosts", "n1", "--spares", "1"], "--spares"),
        (["--hosts", "n1", "--save-before", "2m"], "--save-before"),
        (["--hosts", "n1", "--node-dir", "x"], "--node-dir"),
        (["--key", "f"], "--key"),
        (["--nodes", "1", "--address", "a"], "--address"),
        (["--inside-slurm", "--known-hosts", "f"], "--known-hosts"),
    ],
)
def test_options_that_contradict_each_other(words: list[str], option: str) -> None:
    with pytest.raises(UsageError, match=option):
        requested(*words)


def test_save_before_has_a_least_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    for command in ("srun", "squeue", "scontrol"):
        (tmp_path / command).write_text("#!/bin/sh\n")
        (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["--inside-slurm", "--slots", "2", "--save-before"]
    found = requested(*words, "10m").remote
    assert found is not None
    assert (found.slurm_job, found.save_before_s) == ("7", 600.0)
    for wrong in ("5s", "x"):
        with pytest.raises(UsageError, match="--save-before"):
            requested(*words, wrong)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="no command srun"):
        requested(*words, "10m")


def test_specifications_are_kept_in_a_file(tmp_path: Path) -> None:
    spec = ClusterSpec(nodes=2, remote=HOSTS)
    save_spec(str(tmp_path), spec)
    assert load_spec(str(tmp_path)) == spec
    (tmp_path / "cluster.json").write_text('{"remote": {"hosts": [{"name": 3}]}}')
    with pytest.raises(ClientError, match="damaged"):
        load_spec(str(tmp_path))
