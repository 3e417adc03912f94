"""Controllers with certificates: false servers, revocation, renewal, several server addresses."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pliant.protos.identity import authority, cluster_files, node_files, trust_bundle
from pliant.protos.identity.certificates import ends_at, format_certificates
from pliant.protos.identity.node_files import NodeIdentity, load_node_identity
from testkit.waiting import wait_until
from tlskit import Membership, tls_addresses
from tlskit.cluster import TlsCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.fixture
def cluster(state_dir: Path) -> Iterator[TlsCluster]:
    """Return a server without nodes."""
    made = TlsCluster(state_dir.parent, {})
    try:
        made.up()
        yield made
    finally:
        made.down()


def is_up(cluster: TlsCluster, name: str) -> Callable[[], bool]:
    return lambda: cluster.states().get(name) == "UP"


def identity(cluster: TlsCluster, name: str) -> NodeIdentity:
    return load_node_identity(cluster.folder(name) / node_files.DIRECTORY)


def wait_for_log(cluster: TlsCluster, name: str, words: str) -> None:
    try:
        wait_until(lambda: words in cluster.log(name))
    except AssertionError as error:
        raise AssertionError(f"{error}: {words!r} is not in\n{cluster.log(name)}") from None


@pytest.mark.case(57)
def test_a_node_sends_nothing_to_a_server_of_another_authority(
    cluster: TlsCluster, tmp_path: Path
) -> None:
    """It has the name and the address of the node's own server, and admits every node n1."""
    own = Membership(tmp_path / "state")
    server = tls_addresses(cluster.run)["nodes"]
    own.join(cluster.folder("n1"), "n1", [server])
    cluster.membership.admit("n1")
    cluster.start_node("n1")
    wait_for_log(cluster, "n1", "certificate of another authority")
    assert cluster.states() == {}
    assert "n1" not in cluster.log("server")


def test_a_revoked_controller_says_so_and_ends(cluster: TlsCluster) -> None:
    cluster.join("n1", None)
    controller = cluster.start_node("n1")
    wait_until(is_up(cluster, "n1"))
    cluster.membership.nodes.revoke("n1", now=time.time())
    assert controller.wait(60) == 1
    assert "node n1 was revoked" in cluster.log("n1")
    wait_until(lambda: cluster.states()["n1"] == "LOST")
    again = cluster.start_node("n1")
    assert again.wait(60) == 1
    assert cluster.log("n1").count("node n1 was revoked") == 2
    assert "Traceback" not in cluster.log("n1")


def test_a_node_renews_its_certificate_while_a_job_runs(cluster: TlsCluster) -> None:
    cluster.join("n1", None, lifetime_s=50.0)  # more than half of its life is over at once
    first = identity(cluster, "n1")
    cluster.start_node("n1")
    wait_for_log(cluster, "n1", "the certificate of this node is renewed")
    wait_until(lambda: cluster.log("n1").count("registered with") == 2)
    renewed = identity(cluster, "n1")
    assert renewed.key != first.key
    assert ends_at(renewed.chain[0]) > time.time() + 29 * authority.DAY_S
    wait_until(lambda: len(cluster.membership.nodes.read()["n1"].serials) == 1)
    assert cluster.membership.nodes.read()["n1"].allows(renewed.chain[0])
    assert is_up(cluster, "n1")()


def test_a_new_root_reaches_nodes_and_their_jobs(cluster: TlsCluster) -> None:
    cluster.join("n1", None)
    cluster.start_node("n1")
    wait_until(is_up(cluster, "n1"))
    job = cluster.client.submit("sleep", "300", sizes="1", type="script", stdout="/dev/null")
    cluster.wait_for(job, lambda each: each.state == "RUNNING", "the job to run")
    (spool,) = (cluster.folder("n1") / "node-n1" / "spool").iterdir()
    assert (spool / "roots.pem").read_bytes() == cluster.membership.roots
    directory = cluster.membership.directory
    bundle = cluster_files.load_identity(directory).roots
    other = authority.create_root("blue", now=time.time())
    both = format_certificates(trust_bundle.add_root(bundle, other.certificate)).encode()
    draft = directory / "roots.new"
    draft.touch(mode=0o600)
    draft.write_bytes(both)
    draft.rename(directory / cluster_files.ROOTS)
    wait_until(lambda: identity(cluster, "n1").roots == both)
    wait_until(lambda: (spool / "roots.pem").read_bytes() == both)
    cluster.client.cancel(job)
    cluster.wait_for(job, lambda each: each.final, "the job to end")


def test_the_addresses_of_the_server_are_tried_in_turn(cluster: TlsCluster) -> None:
    """And they are read again, so that the server can move while the controller runs."""
    directory = cluster.join("n1", None)
    real = tls_addresses(cluster.run)["nodes"]
    path = directory / node_files.SERVER
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "servers": ["127.0.0.1:1", "127.0.0.1:2"]}))
    cluster.start_node("n1")
    wait_for_log(cluster, "n1", "127.0.0.1:2: Connection refused")
    path.write_text(json.dumps({**record, "servers": ["127.0.0.1:1", real]}))
    wait_until(is_up(cluster, "n1"))


def test_an_expired_node_joins_again_without_a_restart(cluster: TlsCluster) -> None:
    directory = cluster.join("n1", None, lifetime_s=1.0)
    time.sleep(1.5)
    cluster.start_node("n1")
    wait_for_log(cluster, "n1", "joining again")
    shutil.rmtree(directory)
    cluster.membership.nodes.revoke("n1", now=time.time())
    cluster.join("n1", None)
    wait_until(is_up(cluster, "n1"))


def test_another_name_is_refused_before_anything_is_sent(cluster: TlsCluster) -> None:
    cluster.join("n1", None)
    assert cluster.start_node("n1", "--name", "n2").wait(60) == 2
    assert "has joined as node n1" in cluster.log("n1")


def test_a_controller_with_too_many_slots_ends_with_the_number(cluster: TlsCluster) -> None:
    cluster.join("n1", 3)
    assert cluster.start_node("n1", "--slots", "4").wait(60) == 1
    assert "--slots 3" in cluster.log("n1")
