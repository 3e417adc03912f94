"""Jobs run as their users: server and controller have an account of their own, without rights."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

from helperkit import ALICE, BOB, Site, needs_root
from helperkit.identity import acting_as
from helperkit.processes import find_all_naming
from pliant.client.client_errors import RequestError
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.world_folder import SpooledExit
from testkit import ROOT, wait_until

pytestmark = [needs_root, pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(400)]

PROGRAM = str(ROOT / "tests" / "e2e" / "apps" / "bargaining.py")


class Malleable:
    """A malleable job of a user."""

    def __init__(self, site: Site, uid: int, name: str) -> None:
        self.site, self.uid, self.output = site, uid, site.output / f"{name}.out"
        self.folder = site.output / name
        self.folder.mkdir()
        os.chown(self.folder, uid, uid)
        self.id = site.as_user(uid).submit(
            site.python, PROGRAM, str(self.folder), "{}", sizes="1-4", prefer=2, type="mpi",
            stdout=str(self.output), chdir="/",
        )  # fmt: skip

    def has(self, size: int) -> None:
        """Wait until the job runs at a size and has done a step there, all as its user."""
        self.site.wait(
            self.uid, self.id, lambda state, held: (state, held) == ("RUNNING", size), f"{size}"
        )
        wait_until(lambda: len(self.ranks()) == size, what=f"{size} ranks")
        before = self.steps()
        wait_until(lambda: self.steps() > before + 1, what="steps", timeout=60)

    def resize(self, size: int) -> None:
        """Fix the size of the job, and wait until it has done a step at this size."""

        def accepted() -> bool:
            try:
                self.site.as_user(self.uid).resize(self.id, size)
            except RequestError as error:  # the strategy may be resizing it
                return "already has" in str(error)
            return True

        wait_until(accepted, what=f"a resize to {size}", timeout=90, every=0.2)
        self.has(size)

    def steps(self) -> int:
        try:
            return int((self.folder / "steps").read_text())
        except FileNotFoundError:
            return 0

    def ranks(self) -> list[psutil.Process]:
        """Return the processes of the program."""
        found = []
        for process in psutil.process_iter():
            try:
                if PROGRAM in process.cmdline() and str(self.folder) in process.cmdline():
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def finish(self) -> None:
        (self.folder / "say").write_text("stop")
        self.site.wait(self.uid, self.id, lambda state, _: state == "COMPLETED", "its end")


def test_a_malleable_job_of_a_user_is_resized(site: Site) -> None:
    job = Malleable(site, ALICE, "counter")
    for size in (2, 4, 1):
        job.resize(size)
        for rank in job.ranks():
            assert set(rank.uids()) == {ALICE}
            assert set(rank.gids()) == {ALICE}
    job.finish()
    found = job.output.stat()
    assert (found.st_uid, found.st_gid) == (ALICE, ALICE)
    wait_until(lambda: os.listdir(site.run / "jobs") == [], what="the end of the job's folder")


def segments(uid: int) -> list[str]:
    """Return the shared memory of a user."""
    return [each.name for each in Path("/dev/shm").iterdir() if each.stat().st_uid == uid]


def test_jobs_survive_their_controller_and_helper(site: Site) -> None:
    jobs = [Malleable(site, uid, str(uid)) for uid in (ALICE, BOB)]
    for job in jobs:
        job.resize(2)
    site.end_daemon("node")
    site.kill()
    site.start()
    site.start_node()
    for job in jobs:
        assert {uid for rank in job.ranks() for uid in rank.uids()} == {job.uid}
        job.has(2)
    jobs[0].finish()
    # A job whose shim is stopped, as its user may do, is ended all the same.
    for rank in jobs[1].ranks():
        parent = rank.parent()
        if parent is not None:
            parent.send_signal(signal.SIGSTOP)
    site.as_user(BOB).cancel(jobs[1].id)
    site.wait(BOB, jobs[1].id, lambda state, _: state == "CANCELLED", "its end")
    assert jobs[1].ranks() == []
    wait_until(lambda: not segments(BOB), what="the end of shared memory")


def test_a_controller_may_be_started_before_its_helper(site: Site) -> None:
    site.end_daemon("node", signal.SIGTERM)
    site.kill()
    wait_until(lambda: not find_all_naming(site.run), what="the end of waiting processes")
    shutil.rmtree(site.run)
    site.launch_node()
    log = site.base / "node.log"
    wait_until(lambda: "when its root helper runs" in log.read_text(), what="the controller")
    output = site.output / "early"
    site.start()
    job = site.as_user(ALICE).submit("/usr/bin/id", "-u", sizes=1, stdout=str(output), chdir="/")
    site.wait(ALICE, job, lambda state, _: state == "COMPLETED", "its end")
    assert output.read_text() == f"{ALICE}\n"


def test_the_exit_of_a_job_that_ended_without_a_controller(site: Site) -> None:
    output = site.output / "late"
    job = site.as_user(ALICE).submit(
        "/bin/sh", "-c", "id -un; sleep 5; exit 7", sizes=1, stdout=str(output), chdir="/"
    )
    wait_until(lambda: output.exists() and output.read_text() == "alice\n", what="output")
    site.end_daemon("node")
    wait_until(lambda: not _runs("sleep 5"), what="the end of the program")
    site.start_node()
    site.wait(ALICE, job, lambda state, _: state == "FAILED", "its end")
    assert site.as_user(ALICE).job(job).exit_code == 7


def _runs(text: str) -> bool:
    return any(
        text in " ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])
    )


def test_nobody_takes_the_place_of_a_shim(site: Site) -> None:
    job = Malleable(site, ALICE, "mine")
    job.resize(2)
    (world, *_) = site.started()
    claim = {"op": "hello", "world": world, "pid": 1, "ready": True, "fence": None, "exits": []}
    for uid in (ALICE, BOB):  # also another process of the same user is not the shim
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)
            with acting_as(uid):
                sock.connect(str(site.run / "shims" / "controller.sock"))
            sock.sendall(json.dumps(claim).encode() + b"\n")
            assert sock.recv(1) == b"", uid
    for text in (b"[" * 100_000 + b"\n", b"\xff\n", b"7\n", b'{"op": []}\n'):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)
            with acting_as(BOB):
                sock.connect(str(site.run / "shims" / "controller.sock"))
            sock.sendall(text)
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(1) == b""
    job.resize(3)
    job.finish()


def claim_end(shim: ProcessIdentity) -> int:
    """Stop a shim, and claim in its name that its rank has ended; return the rank's process.

    A user can do the same with a debugger.
    """
    process = psutil.Process(shim.pid)
    (rank,) = process.children()
    process.suspend()
    stolen = [_steal(shim.pid, int(number)) for number in os.listdir(f"/proc/{shim.pid}/fd")]
    (channel,) = [sock for sock in stolen if sock is not None]
    end = SpooledExit(rank=0, processor=0, code=0, signal=0, reason="", at=time.time())
    with channel:
        channel.sendall(json.dumps({"op": "exits", "exits": [end.to_record()]}).encode() + b"\n")
    return rank.pid


def _steal(pid: int, number: int) -> socket.socket | None:
    """Return a copy of the descriptor of a process if it is a connection to the controller."""
    libc, process = ctypes.CDLL(None), os.pidfd_open(pid)
    copy = libc.syscall(438, process, number, 0)  # pidfd_getfd
    os.close(process)
    try:
        sock = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None
    if sock.family == socket.AF_UNIX and str(_peer_name(sock)).endswith("controller.sock"):
        return sock
    sock.close()
    return None


def _peer_name(sock: socket.socket) -> object:
    try:
        return sock.getpeername()
    except OSError:
        return None


@pytest.mark.parametrize("helper_runs", [True, False])
def test_a_claimed_end_counts_when_the_processes_have_ended(site: Site, helper_runs: bool) -> None:
    client = site.as_user(ALICE)
    job = client.submit("/bin/sleep", "600", sizes=1, type="uni", stdout="/dev/null", chdir="/")
    site.wait(ALICE, job, lambda state, _: state == "RUNNING", "its start")
    (world,) = site.started()
    shim = site.find(world)
    assert shim is not None
    wait_until(lambda: _runs("/bin/sleep 600"), what="the program")
    if not helper_runs:
        site.kill()
    rank = claim_end(shim)
    log = site.base / "node.log"
    wait_until(lambda: f"{world}: its shim does not end it" in log.read_text(), timeout=60)
    if not helper_runs:
        assert client.job(job).state == "RUNNING"
        assert psutil.pid_exists(rank)
        site.start()
    site.wait(ALICE, job, lambda state, _: state == "COMPLETED", "its end")
    assert not psutil.pid_exists(rank)


@pytest.mark.case(58)
def test_a_job_whose_user_was_removed_is_held(site: Site) -> None:
    output = site.output / "held"
    client = site.as_user(ALICE)
    job = client.submit("/bin/true", sizes=1, stdout=str(output), chdir="/", hold=True)
    accounts = site.accounts / "passwd"
    before = accounts.read_text()
    accounts.write_text("".join(each for each in before.splitlines(True) if "alice" not in each))
    client.release(job)
    site.wait(ALICE, job, lambda state, _: state == "HELD", "the job to be held")
    wait_until(lambda: "has not signed" in client.job(job).reason, what="the reason")
    assert not output.exists()
    assert [node.state for node in client.nodes()] == ["UP"]
    accounts.write_text(before)
    client.release(job)
    site.wait(ALICE, job, lambda state, _: state == "COMPLETED", "its end")


def test_single_jobs_of_two_users(site: Site) -> None:
    jobs = {}
    for uid in (ALICE, BOB):
        path = site.output / f"{uid}.txt"
        jobs[uid] = (
            path,
            site.as_user(uid).submit(
                "/bin/sh", "-c", "id -u; umask", sizes=1, stdout=str(path), chdir="/"
            ),
        )
    for uid, (path, job) in jobs.items():
        site.wait(uid, job, lambda state, _: state == "COMPLETED", "its end")
        assert Path(path).read_text().split()[0] == str(uid)
        assert path.stat().st_uid == uid


def test_a_script_of_a_user_starts_steps(site: Site) -> None:
    """The shim, which starts them, is a process of the user."""
    script = site.output / "job.sh"
    step = f"{site.python} -m pliant.client.run.run_command"
    script.write_text(
        f"{step} sh -c 'echo $PMI_RANK/$PMI_SIZE $(id -un)'\n"
        f"{step} -n 1 sh -c 'exit 5'\necho code $?\n"
    )
    output = site.output / "steps"
    job = site.as_user(ALICE).submit(
        "/bin/sh", str(script), type="script", sizes=2, stdout=str(output), chdir="/"
    )
    site.wait(ALICE, job, lambda state, _: state == "COMPLETED", "its end")
    lines = output.read_text().splitlines()
    assert sorted(lines[:2]) == ["0/2 alice", "1/2 alice"]
    assert lines[-1] == "code 5"
    wait_until(lambda: os.listdir(site.run / "jobs") == [], what="the end of the job's folder")
