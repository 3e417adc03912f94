"""A node without the shared folder of checkpoints is named to administrators and users."""

from __future__ import annotations

import signal

import pytest

from helperkit import Site, needs_root
from testkit import wait_until

pytestmark = [needs_root, pytest.mark.cluster, pytest.mark.timeout(300)]


def checkpoints(site: Site) -> str:
    """Return what the node says of the folder, as soon as it says something."""
    return wait_until(lambda: site.as_user(0).nodes()[0].checkpoints, what="the node's report")


def test_a_node_that_does_not_share_the_folder_is_named(site: Site) -> None:
    assert checkpoints(site) == "shared"
    site.end_daemon("node", signal.SIGTERM)
    site.hidden_from_node = site.checkpoints
    site.start_node()
    wait_until(lambda: "not shared" in checkpoints(site), what="the missing folder")
    assert "cannot use the folder of checkpoints" in (site.base / "server.log").read_text()


def test_a_folder_to_which_users_cannot_write_is_named(site: Site) -> None:
    site.end_daemon("node", signal.SIGTERM)
    site.checkpoints.chmod(0o755)
    site.start_node()
    wait_until(lambda: "chmod 1777" in checkpoints(site), what="the wrong mode")
