"""A server of its own, and one process that speaks the protocol of many node controllers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchkit import APPS, answering
from pliant.client.api import Client
from pliant.protos.identity import admitted_nodes, authority, cluster_files, keys
from pliant.protos.identity.admitted_nodes import AdmittedNodes
from pliant.protos.identity.certificate_names import Identity, Role
from pliant.protos.identity.certificates import format_certificates


@contextmanager
def server(base: Path, **settings: object) -> Iterator[psutil.Process]:
    """Run a server without nodes; yield its process when it answers.

    Args:
        base: the folder that `folders` of this package has made.
        settings: keys and values of the server's configuration.
    """
    config = base / "server.yaml"
    config.write_text(json.dumps({"strategy": "fcfs", **settings}))  # JSON is YAML, too
    command = [sys.executable, "-m", "pliant.server", "--config", str(config)]
    with (
        (base / "server.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            with Client() as client:
                answering(client)
            while not (base / "run" / "server.address").exists():
                time.sleep(0.01)
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


class Controllers:
    """Reads the output of the one process that acts as the controllers of all nodes."""

    def __init__(self, process: subprocess.Popen[str], began: float) -> None:
        self._process, self._began = process, began

    def next(self, kind: str) -> list[float]:
        """Wait for the next line of the process's output, and return the numbers in it.

        If the line does not begin with the word ``kind``, end with an error.
        """
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        if words[:1] != [kind]:
            raise SystemExit(f"expected {kind!r} from the nodes, got {words}")
        return [float(word) for word in words[1:]]

    def registered(self) -> float:
        """Wait until the server has accepted all nodes; return the seconds since their start."""
        self.next("up")
        return time.perf_counter() - self._began


@contextmanager
def controllers(base: Path, number: int, *, tls: bool = False) -> Iterator[Controllers]:
    """Run the controllers of ``number`` nodes of one slot each (`apps/many_controllers.py`).

    With ``tls`` they connect to the port for other hosts, each with a certificate of its own.
    """
    if tls:
        address = json.loads((base / "run" / "cluster.addresses").read_text())["nodes"]
        secret = issue_certificates(base, number)
    else:
        address = (base / "run" / "server.address").read_text().strip()
        secret = base / "state" / "node.secret"
    command = [sys.executable, str(APPS / "many_controllers.py"), address, str(secret), str(number)]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Controllers(process, began)
        finally:
            process.kill()


def create_cluster(base: Path) -> None:
    """Make the identity of a cluster, so that a server can listen for other hosts."""
    cluster_files.create_identity(base / "state" / "identity", "bench", [], now=time.time())


def issue_certificates(base: Path, number: int) -> Path:
    """Admit ``number`` nodes, and return the folder with their keys and certificates."""
    directory, folder = base / "state" / "identity", base / "certificates"
    folder.mkdir(mode=0o700, exist_ok=True)
    issuer, nodes = cluster_files.load_issuer(directory), []
    for name in (f"n{each}" for each in range(1, number + 1)):
        key = keys.create_certificate_key()
        request = authority.create_request(key)
        identity = Identity("bench", Role.NODE, name)
        chain = authority.issue(issuer, request, identity, now=time.time())
        (folder / f"{name}.key").write_text(keys.format_private_key(key))
        (folder / f"{name}.pem").write_text(format_certificates(chain))
        nodes.append((name, chain[0]))
    (folder / "roots.pem").write_bytes((directory / cluster_files.ROOTS).read_bytes())
    admitted = AdmittedNodes(directory / admitted_nodes.FILE)
    for name, certificate in nodes:
        admitted.admit(name, None, certificate, now=time.time())
    return folder


def used(process: psutil.Process) -> float:
    """Return the seconds of processor time that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)
