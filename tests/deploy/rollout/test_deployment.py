"""`pliant deploy hosts.yaml` over a real sshd, with real daemons: from nothing to nothing.

All hosts are this machine, with folders of their own.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploykit.ports import ADDRESS, free_ports
from deploykit.wheels import write_checkout_wheel
from pliant.deploy.deploy_command import main
from pliant.deploy.on_host.processes import end_process, find_processes
from sshkit import SshDaemon, missing_programs
from testkit import wait_until

pytest.importorskip("paramiko", reason="needs paramiko (extra deploy)")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(missing_programs()), reason=f"{missing_programs()} is not installed"),
]

HOSTS = """\
cluster: blue
listen: {address}:{port}
user: {user}
port: {ssh_port}
key: {key}
known_hosts: {known_hosts}
account: {user}
helper: false
service: plain
python: {python}
users: [{user}]
shared: [{base}/shared]
folders:
  prefix: {base}/{{name}}/prefix
  state: {base}/{{name}}/state
  run: {base}/{{name}}/run
  config: {base}/{{name}}/config
hosts:
  head: {{role: server, address: {address}}}
  n1: {{slots: 2, address: {address}, interface: lo}}
  n2: {{slots: 2, address: {address}, interface: lo}}
"""


class Site:
    """Three hosts, their file and the command."""

    def __init__(self, sshd: SshDaemon, base: Path) -> None:
        self.base, self._sshd = base, sshd
        (base / "shared").mkdir()
        self.file = base / "hosts.yaml"
        text = HOSTS.format(
            address=ADDRESS,
            port=free_ports(3),
            user=getpass.getuser(),
            ssh_port=sshd.port,
            key=sshd.key,
            known_hosts=sshd.known_hosts,
            base=base,
            python=sys.executable,
        )
        self.file.write_text(text)
        for version in ("1.0", "2.0"):
            write_checkout_wheel(base / version, version)

    def change(self, old: str, new: str) -> None:
        """Change the file of the hosts."""
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))

    def run(self, *options: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
        """Run the command; return its exit code and the record of each host by name."""
        capsys.readouterr()
        words = [str(self.file), "--wheelhouse", str(self.base / "1.0"), "--json", *options]
        code = main(words)
        printed = capsys.readouterr()
        assert printed.out, printed.err
        return code, {each["host"]: each for each in json.loads(printed.out)}

    def command(self, *words: str) -> str:
        """Run a command of Pliant on the server's host."""
        program, *rest = words
        folders = {"PLIANT_STATE_DIR": "state", "PLIANT_RUN_DIR": "run"}
        own = {name: str(self.base / "head" / each) for name, each in folders.items()}
        path = self.base / "head/prefix/current/bin" / program
        return subprocess.run(
            [path, *rest],
            env={**os.environ, **own},
            check=True,
            capture_output=True,
            text=True,
            cwd=self.base / "shared",
        ).stdout

    def jobs(self) -> dict[int, str]:
        """Return the states of jobs."""
        return {job["id"]: job["state"] for job in json.loads(self.command("jobstat", "--json"))}

    def processes(self) -> list[int]:
        """Return the processes of all hosts."""
        prefixes = [str(self.base / name / "prefix") for name in ("head", "n1", "n2")]
        return [each.pid for prefix in prefixes for each in find_processes(prefix)]


@pytest.fixture
def site() -> Iterator[Site]:
    # The folder of pytest is too long for the first line of a script.
    folder = Path(tempfile.mkdtemp(prefix="pliant-hosts-"))
    sshd = SshDaemon(folder / "sshd")
    sshd.start()
    made = Site(sshd, folder)
    try:
        yield made
    finally:
        sshd.stop()
        for pid in made.processes():
            end_process(pid, 10)
        shutil.rmtree(folder)


def outcomes(records: Any) -> dict[str, str]:
    return {name: record["outcome"] for name, record in records.items()}


def test_from_nothing_to_a_cluster_and_back(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    code, records = site.run("--dry-run", capsys=capsys)
    assert (code, set(outcomes(records).values())) == (0, {"to change"})
    assert not (site.base / "head").exists()

    # A bad host does not stop the others: nothing listens at the port of n2, ...
    right, wrong = "n2: {slots: 2", f"n2: {{port: {free_ports(1)}, slots: 2"
    site.change(right, wrong)
    code, records = site.run(capsys=capsys)
    assert (code, outcomes(records)) == (
        1,
        {"head": "changed", "n1": "changed", "n2": "failed"},
    ), records
    (problem,) = records["n2"]["problems"]
    assert problem["check"] == "connect"
    assert problem["remedy"]

    # ... and then the folder of its environments cannot be made. The command repairs what it can.
    site.change(wrong, right)
    (site.base / "n2").mkdir()
    (site.base / "n2/prefix").touch()
    code, records = site.run(capsys=capsys)
    assert (code, outcomes(records)) == (
        1,
        {"head": "unchanged", "n1": "unchanged", "n2": "failed"},
    ), records
    shutil.rmtree(site.base / "n2")
    code, records = site.run(capsys=capsys)
    assert (code, outcomes(records)) == (
        0,
        {"head": "unchanged", "n1": "unchanged", "n2": "changed"},
    ), records
    job = int(site.command("jobsub", "--parsable", "--type", "uni", "sleep", "600"))
    wait_until(lambda: site.jobs()[job] == "RUNNING", what="the job")

    # Again: nothing changes.
    before = site.processes()
    code, records = site.run(capsys=capsys)
    assert (code, set(outcomes(records).values())) == (0, {"unchanged"}), records
    assert site.processes() == before
    code, records = site.run("--check", capsys=capsys)
    assert (code, records["n1"]["problems"]) == (0, [])
    assert set(records["n1"]["daemons"]) == {"node"}

    # Another release: refused, then a rolling upgrade and back, while the job runs.
    newer = ("--wheelhouse", str(site.base / "2.0"))
    code, records = site.run(*newer, capsys=capsys)
    assert (code, set(outcomes(records).values())) == (1, {"failed"})
    for options, release in (((*newer, "--upgrade"), "2.0"), (("--rollback",), "1.0")):
        code, records = site.run(*options, capsys=capsys)
        assert (code, set(outcomes(records).values())) == (0, {"changed"}), records
        _, records = site.run("--check", capsys=capsys)
        for record in records.values():
            assert {f"env-{release}"} == {
                each.rpartition("-")[0] for each in record["daemons"].values()
            }
        assert site.jobs()[job] == "RUNNING"

    # A node with jobs is removed only if that is wanted.
    used = [node["name"] for node in json.loads(site.command("nodestat", "--json")) if node["used"]]
    code, records = site.run("--remove", "--yes", "--limit", used[0], capsys=capsys)
    assert (code, outcomes(records)) == (1, {used[0]: "failed"})
    code, records = site.run("--remove", "--yes", "--end-jobs", capsys=capsys)
    assert (code, set(outcomes(records).values())) == (0, {"changed"}), records
    assert site.processes() == []
    left = {path.name for path in site.base.iterdir()}
    assert left == {"sshd", "shared", "hosts.yaml", "1.0", "2.0"}
    assert not [each for each in os.listdir(site.base / "shared") if "deploy" in each]


#: Programs that stand for the interpreter of a host on which something is wrong.
WRONG = {
    "clock": "import time; true = time.time; time.time = lambda: true() + 500",
    "disk space": (
        "import os; os.statvfs = lambda path: os.statvfs_result([4096, 4096] + [9] * 8)"
    ),
    "python": "import sys; sys.version_info = (3, 9, 2)",
    "interface": "import socket; socket.if_nameindex = lambda: []",
}


def test_a_wrong_host_is_named_with_the_check(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    python = site.base / "python"
    site.change("n2: {slots: 2", f"n2: {{python: {python}, slots: 2")
    for check, wrong in WRONG.items():
        code = f"import sys; {wrong}; exec(sys.argv.pop())"
        python.write_text(f"#!/bin/sh\nexec {sys.executable} -I -c '{code}' \"$3\"\n")
        python.chmod(0o755)
        result, records = site.run("--check", capsys=capsys)
        assert (result, outcomes(records)) == (
            1,
            {"head": "unchanged", "n1": "unchanged", "n2": "failed"},
        )
        (problem,) = records["n2"]["problems"]
        assert check in problem["check"] or check in problem["message"].lower()
        assert problem["remedy"]
