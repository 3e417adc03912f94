"""The Debian package on a host with systemd: installed, upgraded under a job, removed, purged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploykit.wheels import write_checkout_wheel
from systemdkit.container import Container, booted
from testkit import ROOT, wait_until

PYTHON = Path("/usr/bin/python3")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb"),
    pytest.mark.skipif(not PYTHON.exists(), reason="needs the Python of Debian"),
]
FOLDERS = ("PLIANT_STATE_DIR=/var/lib/pliant", "PLIANT_RUN_DIR=/run/pliant-daemons")
UNITS = ("pliant-server", "pliant-nodectl", "pliant-helper")


def build(folder: Path) -> Path:
    """Build a package whose environment uses the modules of this checkout, and so is small."""
    write_checkout_wheel(folder / "wheels", "2.0rc1")
    recipe = ROOT / "deploy/packaging/debian/build"
    words: list[str | Path] = ["sh", recipe, folder / "wheels", folder, PYTHON]
    environment = {**os.environ, "PIP": os.path.join(sys.prefix, "bin/pip")}
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=400, env=environment
    )
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("pliant_*.deb")
    return found


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Container]:
    """Return a container that has the package in /srv, and no Pliant."""
    with booted() as container:
        shutil.rmtree(container.root / "opt/pliant")
        # Images of containers have a policy that forbids packages to restart services.
        (container.root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
        if container.run("dpkg-query", "-W", "systemd", PYTHON.resolve().name, check=False) == "":
            pytest.skip("systemd or Python is not from a Debian package")
        package = build(tmp_path)
        assert package.name.startswith("pliant_2.0~rc1-1_")
        shutil.copy(package, container.root / "srv/pliant.deb")
        yield container


def own_files(host: Container) -> set[str]:
    """Return paths that have to do with Pliant, without caches and those that the test made."""
    places = ("/etc", "/opt", "/var/lib", "/run", "/usr/bin", "/usr/lib/systemd", "/usr/share/man")
    found = host.run("find", *places, "-name", "*pliant*", "-not", "-path", "/run/systemd/*")
    return set(found.splitlines())


def test_the_package_keeps_jobs_when_upgraded_and_state_until_purged(host: Container) -> None:
    before = own_files(host)
    # Without triggers: that of man-db reads all manual pages of the host.
    host.run("dpkg", "--no-triggers", "-i", "/srv/pliant.deb", timeout_s=300)
    assert host.run("/usr/bin/pliant", "--version") == "pliant 2.0rc1"
    units = [f"/usr/lib/systemd/system/{each}.service" for each in UNITS]
    host.run("systemd-analyze", "verify", "--man=no", *units)
    assert "jobsub" in host.run("sh", "-c", "zcat /usr/share/man/man1/jobsub.1.gz")
    # Settings of administrators survive an upgrade.
    settings = host.root / "etc/pliant/server.yaml"
    settings.write_text(f"{settings.read_text()}listen: 127.0.0.1:7000\n")

    start_cluster(host)
    host.run("useradd", "-m", "alice")
    jobsub = ("jobsub", "--json", "--output", "/home/alice/out", "sleep", "3000")
    job = json.loads(host.run_as("alice", *jobsub))["id"]
    wait_until(lambda: state(host, job) == "RUNNING", timeout=90, every=0.3, what="the job")
    process = host.run("pgrep", "-u", "alice", "sleep")
    daemons = {each: host.show(each, "MainPID") for each in UNITS}

    # The same package again: the scripts do the same as for another version.
    host.run("dpkg", "--no-triggers", "--force-confold", "-i", "/srv/pliant.deb", timeout_s=300)
    assert "127.0.0.1:7000" in settings.read_text()
    for each in UNITS:
        assert host.show(each, "ActiveState") == "active"
        assert host.show(each, "MainPID") != daemons[each]
    wait_until(lambda: state(host, job) == "RUNNING", timeout=90, every=0.3, what="the job")
    assert host.run("pgrep", "-u", "alice", "sleep") == process

    # A removal does not end jobs, and the daemons run again after the refusal.
    refused = host.run("sh", "-c", "dpkg --no-triggers -r pliant 2>&1 || true", timeout_s=300)
    assert "end them with `jobdel`" in refused
    wait_until(lambda: state(host, job) == "RUNNING", timeout=90, every=0.3, what="the job")
    host.run_as("alice", "jobdel", str(job))
    wait_until(
        lambda: not host.run("pgrep", "-u", "alice", check=False), timeout=90, what="its end"
    )

    host.run("dpkg", "--no-triggers", "-r", "pliant", timeout_s=300)
    assert not (host.root / "opt/pliant").exists()
    assert (host.root / "var/lib/pliant").is_dir()
    assert "127.0.0.1:7000" in settings.read_text()
    host.run("dpkg", "--purge", "pliant")
    assert own_files(host) == before


def start_cluster(host: Container) -> None:
    """Make a cluster of one node with its server, as docs/installation.md tells."""
    words = ("env", *FOLDERS, "pliant", "cluster")
    host.run_as("pliant", *words, "init", "--name", "blue", "--address", "127.0.0.1")
    host.run("systemctl", "enable", "--now", "pliant.target", "pliant-server")
    token = host.run_as("pliant", *words, "token", "--node", "n1").splitlines()[0]
    join = ("pliant", "node", "join", token, "--account", "pliant")
    host.run("env", FOLDERS[0], *join)
    host.run("systemctl", "enable", "--now", "pliant-helper", "pliant-nodectl")


def state(host: Container, job: int) -> str:
    """Return the state of a job, empty if the server does not answer."""
    found = host.run_as("alice", "jobstat", "--json", str(job), check=False)
    return str(json.loads(found)[0]["state"]) if found.startswith("[") else ""
