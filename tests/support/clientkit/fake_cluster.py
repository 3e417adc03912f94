"""A cluster of fake daemons; see the fixture `state` in tests/client."""

from __future__ import annotations

from pathlib import Path

from pliant.client.cluster.local_cluster import LocalCluster

FAKE_DAEMON = str(Path(__file__).with_name("fake_daemon.py"))


def cluster(state: Path) -> LocalCluster:
    """Return the cluster of a state folder."""
    return LocalCluster(str(state), str(state.parent / "run"))


def running(state: Path) -> dict[str, int]:
    """Return the process ids of its daemons that run, by name."""
    return {daemon.name: daemon.running_pid() for daemon in cluster(state).running()}
