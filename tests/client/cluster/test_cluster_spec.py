"""The specification of a cluster on this machine: its sites."""

from __future__ import annotations

from pathlib import Path

from pliant.client.cluster.cluster_spec import ClusterSpec, load_spec, save_spec
from pliant.client.cluster.local_cluster import LocalCluster


def test_nodes_belong_to_sites_in_order_and_spare_nodes_to_none(tmp_path: Path) -> None:
    spec = ClusterSpec(nodes=3, spares=1, sites="delft:2,leiden:1")
    assert [spec.site_of(node) for node in spec.node_names] == ["delft", "delft", "leiden", ""]
    assert {ClusterSpec().site_of("n1"), spec.site_of("n9")} == {""}
    save_spec(str(tmp_path), spec)
    assert load_spec(str(tmp_path)) == spec


def test_controllers_are_told_their_site(tmp_path: Path) -> None:
    spec = ClusterSpec(nodes=2, sites="delft:1,leiden:1")
    commands = [d.command for d in LocalCluster(str(tmp_path), str(tmp_path), spec).daemons[1:]]
    assert [words[words.index("--cluster") + 1] for words in commands] == ["delft", "leiden"]
