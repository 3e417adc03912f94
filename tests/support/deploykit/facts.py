"""A cluster of three hosts, and facts of bare hosts, for tests of plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from pliant.deploy.planning.cluster import Cluster
from pliant.deploy.planning.facts import HostFacts
from pliant.deploy.planning.hosts_file import read_hosts_file
from pliant.deploy.planning.plan import probe_arguments
from pliant.deploy.planning.release import Release

HOSTS = """\
cluster: blue
listen: 10.0.0.1:7000
{more}
hosts:
  head: {{role: server}}
  n[1-2]: {{slots: 4}}
"""
RELEASE = Release("env-1.0-aaaaaaaa", "1.0", {"pliant-1.0-py3-none-any.whl": "00"}, 100 << 20)
NEXT_RELEASE = Release("env-2.0-bbbbbbbb", "2.0", {"pliant-2.0-py3-none-any.whl": "11"}, 100 << 20)


def make_cluster(folder: Path, more: str = "") -> Cluster:
    """Return a cluster of a server and two nodes."""
    path = folder / "hosts.yaml"
    path.write_text(HOSTS.format(more=more))
    return read_hosts_file(str(path))


def bare_facts(cluster: Cluster, name: str, **changes: Any) -> HostFacts:
    """Return the facts of a host on which nothing is deployed."""
    (host,) = cluster.select([name])
    looked_at: Any = probe_arguments(cluster, host)
    number = cluster.hosts.index(host) + 1
    facts = HostFacts(
        python=(3, 11, 2),
        magic="a70d0d0a",
        has_venv=True,
        machine="x86_64",
        glibc="2.36",
        time=1e9,
        user="root",
        is_root=True,
        has_systemd=False,
        cpus=4,
        free_bytes=dict.fromkeys(looked_at["writable"], 10 << 30),
        interfaces={"lo": "127.0.0.1", "eth0": f"10.0.0.{number}", "eth1": ""},
        route=f"10.0.0.{number}",
        accounts=dict.fromkeys(looked_at["accounts"], (900, 900)),
        files=dict.fromkeys(looked_at["files"]),
        folders=[],
        environments=[],
        current="",
        manifest=None,
        daemons={},
        job_processes=0,
        server_roots=[],
        node_roots=[],
    )
    return msgspec.structs.replace(facts, **changes)
