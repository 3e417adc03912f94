"""All daemons under systemd in a container: watchdog, kill -9, restart, reload and stop.

A job of a user runs during all of it, and goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest

from systemdkit import Container
from systemdkit.container import PREFIX, booted
from testkit import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

DAEMONS = ("pliant-server", "pliant-nodectl", "pliant-helper", "pliant-login-agent")
#: So short that the test is quick, and long enough for a machine that is busy.
WATCHDOG_S = 5
FOLDERS = {"PLIANT_STATE_DIR": "/var/lib/pliant", "PLIANT_RUN_DIR": "/run/pliant-daemons"}
#: The login agent would be on another host, and so has folders of its own.
LOGIN_AGENT = f"""[Service]
EnvironmentFile=
Environment=PLIANT_STATE_DIR=/var/lib/pliant-login
StateDirectory=
StateDirectory=pliant-login
RuntimeDirectory=pliant-login
ExecStart=
ExecStart={PREFIX}/bin/pliant login-agent --users-dir /run/pliant-login
"""


class InstalledHost:
    """A container with all daemons and the users alice and pliant."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.job = 0

    def install(self) -> None:
        """Install and start everything as docs/installation.md tells."""
        host = self.container
        host.run("useradd", "-m", "alice")
        listen = ["--listen", "127.0.0.1:7000"]
        host.run("pliant", "deploy", "units", "--output", "/etc", *listen)
        with open(host.root / "etc/pliant/server.yaml", "a") as settings:
            settings.write("listen_users: 127.0.0.1:7003\n")
        for unit in DAEMONS:
            drop_in = f"/etc/systemd/system/{unit}.service.d"
            host.write(f"{drop_in}/watchdog.conf", f"[Service]\nWatchdogSec={WATCHDOG_S}\n")
        host.write("/etc/systemd/system/pliant-login-agent.service.d/folders.conf", LOGIN_AGENT)
        host.run("systemd-sysusers")
        host.run("systemd-tmpfiles", "--create")
        host.run("systemctl", "daemon-reload")
        self.as_account("cluster", "init", "--name", "blue", "--address", "127.0.0.1")
        host.run("systemctl", "enable", "--now", "pliant.target", "pliant-server")
        self.join("--node", "n1")
        self.join("--login-agent", "login1", state="/var/lib/pliant-login")
        host.run("systemctl", "enable", "--now", *DAEMONS[1:])
        wait_until(lambda: self.node() == "UP", every=0.2, what="the node")

    def as_account(self, *words: str) -> str:
        """Run a subcommand of pliant as the account of the daemons."""
        folders = [f"{name}={value}" for name, value in FOLDERS.items()]
        return self.container.run_as("pliant", "env", *folders, "pliant", *words)

    def join(self, *member: str, state: str = FOLDERS["PLIANT_STATE_DIR"]) -> None:
        """Make a token, and join with it as root."""
        token = self.as_account("cluster", "token", *member).splitlines()[0]
        join = ["pliant", "node", "join", token, "--account", "pliant"]
        self.container.run(*join, PLIANT_STATE_DIR=state)

    def node(self) -> str:
        """Return the state of the node, empty if the server does not answer."""
        found = self.container.run("nodestat", "--json", check=False)
        return str(json.loads(found)[0]["state"]) if found.startswith("[") else ""

    def submit(self, *command: str) -> int:
        """Submit a job of alice."""
        text = self.container.run_as("alice", "jobsub", "--json", *command)
        return int(json.loads(text)["id"])

    def start_job(self) -> None:
        """Start a job of alice that sleeps during the tests."""
        self.job = self.submit("sleep", "3000")
        self.wait_for_job(self.job, "RUNNING")

    def job_state(self, job: int) -> str:
        """Return the state of a job, empty if the server does not answer."""
        found = self.container.run_as("alice", "jobstat", "--json", str(job), check=False)
        return str(json.loads(found)[0]["state"]) if found.startswith("[") else ""

    def wait_for_job(self, job: int, state: str) -> None:
        """Wait until a job has a state."""
        wait_until(
            lambda: self.job_state(job) == state,
            timeout=90,
            every=0.3,
            what=f"{state} of job {job}",
        )

    def is_serving(self, unit: str) -> bool:
        """Return whether a daemon has told systemd that it is ready."""
        return self.container.show(unit, "ActiveState") == "active"

    def has_stopped(self, unit: str) -> bool:
        """Return whether a daemon was stopped."""
        return self.container.show(unit, "ActiveState") == "inactive"

    def main_process(self, unit: str) -> int:
        """Return the process of a daemon."""
        return int(self.container.show(unit, "MainPID"))

    def sleeping(self) -> str:
        """Return the processes of the job of alice that sleeps."""
        return self.container.run("pgrep", "-u", "alice", "-x", "sleep", check=False)

    def wait_for_restart(self, unit: str, old: int) -> None:
        """Wait until another process of a daemon serves, and the job is seen to run."""
        wait_until(
            lambda: self.main_process(unit) not in (0, old) and self.is_serving(unit),
            timeout=90,
            every=0.2,
            what=f"another process of {unit}",
        )
        wait_until(lambda: self.node() == "UP", timeout=90, every=0.2, what="the node")
        self.wait_for_job(self.job, "RUNNING")


@pytest.fixture(scope="module")
def host() -> Iterator[InstalledHost]:
    with booted() as container:
        installed = InstalledHost(container)
        installed.install()
        installed.start_job()
        yield installed


def test_every_daemon_has_told_that_it_is_ready(host: InstalledHost) -> None:
    for unit in DAEMONS:
        assert host.is_serving(unit)
        assert host.container.show(unit, "NRestarts") == "0"
        assert "serving" in host.container.show(unit, "StatusText")


def capabilities(host: InstalledHost, process: int) -> int:
    """Return the effective capabilities of a process, which can never gain others."""
    text = host.container.run("cat", f"/proc/{process}/status")
    fields = dict(line.split(":", 1) for line in text.splitlines())
    assert fields["NoNewPrivs"].strip() == "1"
    return int(fields["CapEff"], 16)


def test_only_the_helper_has_privileges(host: InstalledHost) -> None:
    for unit in DAEMONS:
        process = host.main_process(unit)
        owner = host.container.run("stat", "-c", "%U", f"/proc/{process}")
        if unit == "pliant-helper":
            # CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID, SYS_PTRACE, SYS_RESOURCE
            allowed = sum(1 << bit for bit in (0, 1, 3, 5, 6, 7, 19, 24))
            assert owner == "root"
            assert capabilities(host, process) & ~allowed == 0
        else:
            assert (owner, capabilities(host, process)) == ("pliant", 0)
    assert capabilities(host, int(host.sleeping())) == 0


def test_a_job_sees_the_host_as_its_user(host: InstalledHost) -> None:
    job = host.submit("--output", "/home/alice/out", "sh", "-c", "id -un; touch ~/made; env")
    host.wait_for_job(job, "COMPLETED")
    text = (host.container.root / "home/alice/out").read_text()
    assert text.startswith("alice\n")
    assert not any(word in text for word in ("NOTIFY_SOCKET", "WATCHDOG", "PYTHONFAULTHANDLER"))
    assert host.container.run("stat", "-c", "%U", "/home/alice/made") == "alice"


def test_a_user_of_the_login_host_reaches_the_server(host: InstalledHost) -> None:
    found = host.container.run_as("alice", "jobstat", "--json", PLIANT_RUN_DIR="/run/pliant-login")
    assert host.job in [job["id"] for job in json.loads(found)]


@pytest.mark.parametrize("unit", DAEMONS)
def test_a_daemon_that_hangs_is_restarted(host: InstalledHost, unit: str) -> None:
    old, sleeping = host.main_process(unit), host.sleeping()
    host.container.run("kill", "-STOP", str(old))
    host.wait_for_restart(unit, old)
    assert "watchdog" in host.container.journal("-u", unit).lower()
    assert host.sleeping() == sleeping


@pytest.mark.parametrize("unit", DAEMONS)
def test_a_daemon_that_was_killed_is_restarted(host: InstalledHost, unit: str) -> None:
    old, sleeping = host.main_process(unit), host.sleeping()
    host.container.run("kill", "-KILL", str(old))
    host.wait_for_restart(unit, old)
    assert host.sleeping() == sleeping


@pytest.mark.parametrize("unit", DAEMONS)
def test_jobs_survive_a_restart(host: InstalledHost, unit: str) -> None:
    old, sleeping = host.main_process(unit), host.sleeping()
    host.container.run("systemctl", "restart", unit)
    host.wait_for_restart(unit, old)
    assert host.sleeping() == sleeping


@pytest.mark.parametrize(
    ("unit", "file", "setting"),
    [
        ("pliant-server", "server.yaml", "offer_timeout_s: 7"),
        ("pliant-nodectl", "node.yaml", "most_processes: 77"),
    ],
)
def test_a_reload_applies_settings(host: InstalledHost, unit: str, file: str, setting: str) -> None:
    old = host.main_process(unit)
    with open(host.container.root / "etc/pliant" / file, "a") as settings:
        settings.write(f"{setting}\n")
    host.container.run("systemctl", "reload", unit)
    name = setting.partition(":")[0]
    wait_until(lambda: name in host.container.journal("-u", unit), every=0.2, what="the reload")
    wait_until(lambda: host.is_serving(unit), every=0.2, what="the end of the reload")
    assert host.main_process(unit) == old


def test_the_journal_has_fields(host: InstalledHost) -> None:
    lines = host.container.journal("-o", "json", "PLIANT_NODE=n1", "PRIORITY=6")
    records = [json.loads(line) for line in lines.splitlines()]
    assert {record["_SYSTEMD_UNIT"] for record in records} == {"pliant-nodectl.service"}
    assert {record["PLIANT_CLUSTER"] for record in records} == {"blue"}
    helper = host.container.journal("-o", "json", "SYSLOG_IDENTIFIER=pliant-helper")
    assert all(json.loads(line)["PRIORITY"] == "6" for line in helper.splitlines())


def test_jobs_survive_a_stop_of_everything(host: InstalledHost) -> None:
    sleeping = host.sleeping()
    host.container.run("systemctl", "stop", "pliant.target")
    for unit in DAEMONS:
        wait_until(partial(host.has_stopped, unit), every=0.2, what=f"the stop of {unit}")
        assert host.container.show(unit, "Result") == "success"
    assert host.sleeping() == sleeping
    host.container.run("systemctl", "start", "pliant.target")
    wait_until(lambda: host.node() == "UP", timeout=90, every=0.2, what="the node")
    host.wait_for_job(host.job, "RUNNING")
    assert host.sleeping() == sleeping
    host.container.run_as("alice", "jobdel", str(host.job))
    host.wait_for_job(host.job, "CANCELLED")
    wait_until(lambda: not host.sleeping(), every=0.2, what="the end of the job")
    host.start_job()


def test_a_wrong_setting_is_not_tried_again(host: InstalledHost) -> None:
    path = host.container.root / "etc/pliant/server.yaml"
    good = path.read_text()
    path.write_text("no_such_key: 1\n")
    host.container.run("systemctl", "restart", "pliant-server", check=False)
    assert host.container.show("pliant-server", "ActiveState") == "failed"
    assert "no_such_key" in host.container.journal("-u", "pliant-server")
    path.write_text(good)
    host.container.run("systemctl", "start", "pliant-server")
    assert host.is_serving("pliant-server")
