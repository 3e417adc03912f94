"""``pliant deploy`` on hosts with nothing but sshd: from nothing to a malleable job on all of them.

The hosts are made on this machine (see ``benchkit.bare_hosts``). One is that of the server, the
others are nodes with two slots. The benchmark deploys to all, and resizes a job of a user across
them. Then it deploys again, upgrades and rolls back while the job runs, removes everything, and
deploys while one host is down.

Budget: 180 s from the call of ``pliant deploy`` to the job that runs on all nodes. The time of the
wheels, which need a package index, is printed, too. All hosts share the processors of this machine.

``python benchmarks/bench_deploy.py [NODES] [WHEELHOUSE]``: 8 nodes by default. Without a folder of
wheels, one is made. Needs root, and the packages iproute2 and openssh-server.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

from benchkit import busy, verdict

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from benchkit.bare_hosts import USER, BareHosts, why_missing

PLIANT = str(Path(sys.executable).parent / "pliant")
SLOTS, BUDGET_S = 2, 180.0
JOB = (
    "jobsub -n 1-{most} --prefer 2 -o /shared/out "
    "python -m pliant.examples.ft --steps 90000 --pause 0.1"
)


class Bench:
    """Calls ``pliant deploy`` for a server and nodes, and checks the results."""

    def __init__(self, hosts: BareHosts, nodes: list[str]) -> None:
        self.hosts, self.nodes = hosts, nodes
        self.failed: list[str] = []

    def write_file(self) -> None:
        """Write the file that names the hosts to ``pliant deploy``."""
        lines = [
            "cluster: bench",
            f"listen: {self.hosts.address('head')}:7000",
            f"key: {self.hosts.key}",
            f"known_hosts: {self.hosts.known_hosts}",
            f"users: [{USER}]",
            "shared: [/shared]",
            "server: {checkpoints: /shared/checkpoints, strategy: fcfs}",
            "hosts:",
            f"  head: {{role: server, address: {self.hosts.address('head')}}}",
            *(
                f"  {name}: {{slots: {SLOTS}, address: {self.hosts.address(name)}}}"
                for name in self.nodes
            ),
        ]
        (self.hosts.base / "hosts.yaml").write_text("\n".join(lines) + "\n")

    def check(self, what: str, holds: bool, more: object = "") -> None:
        """Print whether the check ``what`` has passed, and record a failure.

        Args:
            what: the text that is printed.
            holds: whether the check has passed.
            more: details, which are printed after a failure only.
        """
        print(f"{'ok  ' if holds else 'FAIL'} {what}{'' if holds else f': {more}'}", flush=True)
        if not holds:
            self.failed.append(what)

    def deploy(self, *options: str) -> tuple[str, float, int]:
        """Run ``pliant deploy``; return its last lines, its seconds and its exit code."""
        begin = time.monotonic()
        done = self.hosts.as_administrator(PLIANT, "deploy", "hosts.yaml", *options)
        took = time.monotonic() - begin
        text = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        print(f"     pliant deploy hosts.yaml {' '.join(options)}: {took:.1f} s, {busy()}")
        return text, took, done.returncode

    def command(self, text: str) -> str:
        """Run a shell command as the user on the server's host; return its output."""
        return self.hosts.run("head", text, USER)

    def job(self, number: int) -> dict[str, Any]:
        """Return a job as ``jobstat --json`` shows it."""
        (found,) = json.loads(self.command(f"jobstat --json {number}"))
        return dict(found)

    def wait(self, number: int, size: int, within_s: float = 120.0) -> dict[str, Any]:
        """Wait until a malleable job runs at a size; return the job."""
        deadline = time.monotonic() + within_s
        while True:
            job = self.job(number)
            found = job["class"], job["state"], job["size"]
            if found == ("malleable", "RUNNING", size) or time.monotonic() > deadline:
                return job
            time.sleep(0.2)

    def start_job(self) -> int:
        """Submit a job, and resize it to all processors; return its number."""
        most = SLOTS * len(self.nodes)
        number = int(self.command(JOB.format(most=most)))
        self.wait(number, 2)
        self.command(f"jobctl resize {number} {most}")
        job = self.wait(number, most)
        self.check(f"job {number} runs on all {len(self.nodes)} nodes", job["size"] == most, job)
        return number

    def run(self, first: str, second: str) -> bool:
        """Run all steps of the benchmark; return whether all checks passed.

        Args:
            first: the folder with the wheels of the release that is deployed first.
            second: the folder with the wheels of the release to upgrade to.
        """
        names = ["head", *self.nodes]
        before = {name: self.hosts.evidence(name) for name in names}
        self.hosts.run("head", "mkdir -m 1777 /shared/checkpoints")
        begin = time.monotonic()
        text, _, code = self.deploy("--wheelhouse", first)
        self.check("all hosts are deployed", code == 0, text)
        number = self.start_job()
        good = verdict("nothing to a job on all nodes", time.monotonic() - begin, BUDGET_S, "s")
        text, _, code = self.deploy("--wheelhouse", first)
        self.check("nothing changes the second time", "nothing to change" in text, text)

        half = SLOTS * len(self.nodes) // 2
        upgrade = ["--wheelhouse", second, "--upgrade"]
        for options, size in ((upgrade, half), (["--rollback"], 2 * half)):
            text, _, code = self.deploy(*options)
            changed = f"{len(names)} hosts: {len(names)} changed"
            self.check(f"{options[-1]} of all hosts", (code, changed in text) == (0, True), text)
            self.command(f"jobctl resize {number} {size}")
            job = self.wait(number, size)
            self.check(
                f"the job runs, and is resized to {size}",
                (job["state"], job["size"], job.get("restarts", 0)) == ("RUNNING", size, 0),
                job,
            )

        text, _, code = self.deploy("--remove", "--yes")
        self.check("the removal is refused while a job runs", code == 1, text)
        text, _, code = self.deploy("--remove", "--yes", "--end-jobs")
        self.check("everything is removed", code == 0, text)
        self.check_nothing_is_left(before)

        down = self.nodes[-1]
        self.hosts.crash(down)
        text, _, code = self.deploy("--wheelhouse", first)
        self.check(f"{down} is down: named, the others are deployed", f"{down}: connect" in text)
        print(text)
        listed = json.loads(self.command("nodestat --json"))
        up = sorted(each["name"] for each in listed if each["state"] == "UP")
        self.check("the other nodes are UP", up == self.nodes[:-1], listed)
        self.hosts.boot(down)
        text, _, code = self.deploy("--wheelhouse", first)
        self.check(f"{down} is deployed when it is up again", code == 0, text)
        self.deploy("--remove", "--yes")
        self.check_nothing_is_left(before)
        return good and not self.failed

    def check_nothing_is_left(self, before: dict[str, set[str]]) -> None:
        """Check that no host has other files, accounts or processes than before.

        Args:
            before: what `BareHosts.evidence` returned for each host at the beginning.
        """
        left = {name: sorted(self.hosts.evidence(name) - was) for name, was in before.items()}
        self.check("nothing is left on any host", not any(left.values()), left)


def next_release(wheelhouse: Path, folder: Path) -> None:
    """Make another release: copy a wheelhouse to ``folder``, and change Pliant's wheel there.

    Only the digest of the wheel changes, not the program in it.
    """
    shutil.copytree(wheelhouse, folder)
    (wheel,) = folder.glob("pliant-*.whl")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.comment = b"next release"


def main(arguments: list[str]) -> int:
    """Run the benchmark and return 1 if a check fails or a step takes too long."""
    if missing := why_missing():
        print(f"skipped: {missing}")
        return 0
    nodes = [f"n{number}" for number in range(1, int(arguments[0]) + 1 if arguments else 9)]
    hosts = BareHosts(["head", *nodes])
    try:
        hosts.up()
        first = Path(arguments[1]).resolve() if len(arguments) > 1 else hosts.base / "wheels"
        if not first.exists():
            begin = time.monotonic()
            subprocess.run([PLIANT, "deploy", "wheels", str(first)], check=True)
            print(f"     wheels: {time.monotonic() - begin:.1f} s")
        next_release(first, hosts.base / "wheels-2")
        bench = Bench(hosts, nodes)
        bench.write_file()
        return 0 if bench.run(str(first), str(hosts.base / "wheels-2")) else 1
    finally:
        hosts.down()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
