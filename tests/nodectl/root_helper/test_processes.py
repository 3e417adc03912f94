"""The helper starts shims and ranks as the user of the job, and ends exactly these."""

from __future__ import annotations

import os
import secrets
import signal
import stat
from functools import partial
from pathlib import Path

import pytest

from helperkit import ALICE, BOB, FakeController, Helper, needs_root
from helperkit.helper import RESEARCH
from helperkit.identity import acting_as
from pliant.nodectl.host import procfs
from pliant.nodectl.root_helper.subreaper_pool import MAX_WAITING, MIN_WAITING
from testkit import wait_until

pytestmark = [needs_root, pytest.mark.timeout(180)]

#: Leaves a process that has changed session, parent and environment, and writes its number.
RUNS_AWAY = (
    "env -i setsid -f sh -c 'echo $$ >>{0}; exec setsid -f sh -c \"echo \\$\\$ >>{0}; "
    "exec sleep 600\"'; while ! test -s {0}; do sleep 0.1; done; echo started; sleep 600"
)


def runs(pid: int) -> bool:
    found = procfs.read_stat(pid)
    return found is not None and found.state not in procfs.ENDED_STATES


def ids(pid: int, name: str) -> list[int]:
    """Return a line of numbers of the status of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, values = line.partition(":")
        if key == name:
            return list(map(int, values.split()))
    raise LookupError(name)


def find_waiting(helper: Helper) -> dict[int, int]:
    """Return the subreapers that have no world yet, and the shim of each."""
    found = dict[int, int]()

    def are_complete() -> bool:
        found.clear()
        for subreaper in procfs.children(the_helper(helper)):
            for shim in procfs.children(subreaper):
                if name_of(shim) == "prestarted shim":
                    found[subreaper] = shim
        return len(found) == pool_size()

    wait_until(are_complete, what="waiting shims")
    return found


def the_helper(helper: Helper) -> int:
    assert helper.process is not None
    return helper.process.pid


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""  # it has ended


def find_fork_server(helper: Helper) -> int:
    """Return the process of which subreapers are forks.

    It is the eldest one with that name: a fork that has not taken a name of its own yet is younger.
    """
    children = procfs.children(the_helper(helper))
    found = [pid for pid in children if name_of(pid) == "fork server"]
    by_start = {stat.start: pid for pid in found if (stat := procfs.read_stat(pid)) is not None}
    return by_start[min(by_start)]


def memory_of(pid: int) -> bytes:
    """Return all that a process could write to its memory."""
    found = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            where, mode, *_ = line.split()
            if mode.startswith("rw"):
                begin, end = (int(word, 16) for word in where.split("-"))
                memory.seek(begin)
                found.append(memory.read(end - begin))
    return b"".join(found)


def pool_size() -> int:
    return max(MIN_WAITING, min(MAX_WAITING, os.cpu_count() or 1))


def test_a_rank_and_its_output_are_the_users(helper: Helper, controller: FakeController) -> None:
    request = helper.request()
    shim = helper.start_world(request)
    caller = controller.accept()
    assert (caller.pid, caller.uid) == (shim.pid, ALICE)
    (end,) = controller.finish(caller)
    assert (end["code"], end["signal"], end["reason"]) == (0, 0, "")
    output = Path(request.stdout)
    uid, gid, groups = output.read_text().splitlines()
    assert (int(uid), int(gid)) == (ALICE, ALICE)
    assert sorted(map(int, groups.split())) == [ALICE, RESEARCH]
    assert (output.stat().st_uid, output.stat().st_gid) == (ALICE, ALICE)
    wait_until(lambda: not helper.started(), what="the end of the subreaper")
    wait_until(lambda: os.listdir(helper.run / "jobs") == [], what="the end of the folder")
    assert f"started 7.1.0: job 7.1, epoch 1, user {ALICE} (alice)" in helper.log()


def test_shim_and_rank_cannot_take_root_back(helper: Helper) -> None:
    request = helper.request(argv=["/bin/sleep", "600"])
    shim = helper.start_world(request)
    wait_until(lambda: procfs.children(shim.pid), what="the rank")
    (rank,) = procfs.children(shim.pid)
    wait_until(lambda: Path(f"/proc/{rank}/comm").read_text() == "sleep\n", what="its program")
    for pid in (shim.pid, rank):
        assert ids(pid, "Uid") == [ALICE] * 4
        assert ids(pid, "Gid") == [ALICE] * 4
        assert ids(pid, "Groups") == [ALICE, RESEARCH]
        assert ids(pid, "NoNewPrivs") == [1]
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        line = f"{name}:\t{'0' * 16}"
        assert line in Path(f"/proc/{rank}/status").read_text().splitlines()
    folder = (helper.run / "jobs" / "7.1").stat()
    assert (folder.st_uid, stat.S_IMODE(folder.st_mode)) == (ALICE, 0o700)
    token = helper.run / "jobs" / "7.1" / "7.1.0" / "token"
    wait_until(token.exists, what="the token")
    assert (token.stat().st_uid, stat.S_IMODE(token.stat().st_mode)) == (ALICE, 0o400)
    environment = procfs.environment(shim.pid)
    assert {entry.partition(b"=")[0] for entry in environment} <= {
        b"", b"PATH", b"LANG", b"USER", b"LOGNAME",
    }  # fmt: skip
    assert helper.end("7.1.0")
    wait_until(lambda: not runs(rank), what="the end of the rank")


#: Prints the serial number of the session keyring, and whether a key of root is found.
KEYRING = """
import ctypes
libc = ctypes.CDLL(None)
print(libc.syscall(250, 0, -3, 0), libc.syscall(249, b"user", b"pliant-test", None, 0))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
def test_a_rank_has_neither_keys_nor_capabilities_of_root(
    helper: Helper, controller: FakeController
) -> None:
    """The helper of this test has both; `capsh` and `keyctl` would show the same."""
    helper.kill()
    helper.start_with_secrets()
    output = helper.output / "out"
    found = []
    for job, uid in ((7, ALICE), (8, BOB)):
        code = f"exec {helper.python} -I -c '{KEYRING}'; "
        shim = helper.start_world(helper.request(uid, job, argv=["/bin/sh", "-c", code]))
        caller = controller.accept()
        status = Path(f"/proc/{shim.pid}/status").read_text()
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            assert f"{name}:\t{'0' * 16}\n" in status
        controller.finish(caller)
        found.append(output.read_text().split())
        output.unlink()
    assert [key for _, key in found] == ["-1", "-1"]
    assert found[0][0] != found[1][0]


def test_a_process_that_ran_away_ends_with_its_world(helper: Helper) -> None:
    request = helper.request(argv=["/bin/sh", "-c", RUNS_AWAY.format(helper.output / "pids")])
    shim = helper.start_world(request)
    pids = helper.output / "pids"
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, what="processes")
    away = int(pids.read_text().split()[1])
    wait_until(lambda: ids(away, "Uid") == [ALICE] * 4)
    os.kill(shim.pid, signal.SIGKILL)  # as the user may
    wait_until(lambda: not runs(away), what="the end of the process")
    wait_until(lambda: not helper.started(), what="the end of the subreaper")


def test_only_worlds_of_the_helper_are_ended(helper: Helper) -> None:
    shims = [
        helper.start_world(helper.request(uid, job, argv=["/bin/sleep", "600"]))
        for uid, job in ((ALICE, 7), (BOB, 8))
    ]
    assert not helper.end("9.1.0")
    assert not helper.end("../started/7.1.0")
    assert helper.end("7.1.0")
    wait_until(lambda: not runs(shims[0].pid), what="the end of the shim")
    assert runs(shims[1].pid)
    assert helper.find("8.1.0") == shims[1]


def test_a_world_outlives_the_helper_and_is_ended_by_the_next(helper: Helper) -> None:
    request = helper.request(argv=["/bin/sh", "-c", RUNS_AWAY.format(helper.output / "pids")])
    shim = helper.start_world(request)
    pids = helper.output / "pids"
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, what="processes")
    helper.kill()
    helper.start()
    assert helper.find("7.1.0") == shim
    assert runs(shim.pid)
    assert helper.end("7.1.0")
    started = [shim.pid, *map(int, pids.read_text().split())]
    wait_until(lambda: not any(map(runs, started)), what="the end of processes")
    wait_until(lambda: os.listdir(helper.run / "jobs") == [], what="the end of the folder")


def test_a_shim_waits_for_a_controller(helper: Helper, controller: FakeController) -> None:
    request = helper.request()
    controller.close()
    shim = helper.start_world(request)
    wait_until(lambda: Path(request.stdout).exists(), what="output")
    again = FakeController(helper.run / "shims", 65534)
    first = again.accept()
    assert runs(shim.pid)
    first.sock.close()  # the controller ends before it has saved the exits
    (end,) = again.finish(again.accept())
    assert end["code"] == 0
    wait_until(lambda: not runs(shim.pid), what="the end of the shim")
    again.close()


def test_two_worlds_of_a_job_share_its_folder(helper: Helper) -> None:
    for world, resize in (("7.1.0", 0), ("7.1.4", 4)):
        helper.start_world(helper.request(world=world, resize=resize, argv=["/bin/sleep", "600"]))
    folder = helper.run / "jobs" / "7.1"
    wait_until(lambda: {"7.1.0", "7.1.4"} <= set(os.listdir(folder)), what="both folders")
    assert helper.end("7.1.0")
    wait_until(lambda: helper.started() == ["7.1.4"], what="the end of one world")
    assert (folder / "7.1.4" / "token").exists()


@pytest.mark.case(60)
def test_a_user_cannot_make_the_helper_remove_files_of_others(
    helper: Helper, controller: FakeController
) -> None:
    keep = helper.base / "keep"
    keep.mkdir()
    (keep / "file").write_text("of root")
    folder = helper.run / "jobs" / "7.1"
    plant = f"ln -s {keep} {folder}/a; mkdir {folder}/b; ln -s {keep}/file {folder}/b/c"
    helper.start_world(helper.request(argv=["/bin/sh", "-c", plant]))
    controller.finish(controller.accept())
    wait_until(lambda: os.listdir(helper.run / "jobs") == [], what="the end of the folder")
    assert (keep / "file").read_text() == "of root"


def test_shims_that_were_killed_while_they_waited_are_replaced(
    helper: Helper, controller: FakeController
) -> None:
    waiting = find_waiting(helper).values()
    for pid in waiting:
        os.kill(pid, signal.SIGKILL)
    shim = helper.start_world(helper.request())
    assert shim.pid not in waiting
    (end,) = controller.finish(controller.accept())
    assert end["code"] == 0


def test_subreapers_and_fork_server_that_were_killed_are_replaced(
    helper: Helper, controller: FakeController
) -> None:
    waiting = find_waiting(helper)
    for pid in (find_fork_server(helper), *waiting):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(runs, waiting)), what="the end of the subreapers")
    helper.start_world(helper.request())
    (end,) = controller.finish(controller.accept())
    assert end["code"] == 0
    wait_until(lambda: not any(map(runs, waiting.values())), what="the end of their shims")
    assert not set(find_waiting(helper)) & set(waiting)


def test_subreapers_wait_again_after_many_starts_at_once(helper: Helper) -> None:
    find_waiting(helper)
    shims = [
        helper.start_world(helper.request(job=job, argv=["/bin/sleep", "600"], stdout="/dev/null"))
        for job in range(1, 2 * pool_size() + 1)
    ]
    assert all(runs(shim.pid) for shim in shims)
    assert len(helper.started()) == len(shims)
    assert not set(find_waiting(helper).values()) & {shim.pid for shim in shims}


def test_nothing_waits_when_the_helper_has_ended(helper: Helper) -> None:
    waiting = find_waiting(helper)
    pids = [find_fork_server(helper), *waiting, *waiting.values()]
    helper.kill()
    wait_until(lambda: not any(map(runs, pids)), what="the end of all")
    helper.start()


def test_a_shim_holds_nothing_of_another_job(helper: Helper) -> None:
    """Shims share the memory of the fork server, which never gets the content of an order."""
    secret = secrets.token_hex(16)
    sleep = ["/bin/sleep", "600"]
    first = helper.start_world(helper.request(argv=sleep, environment={"SECRET": secret}))
    second = helper.start_world(helper.request(BOB, 8, argv=sleep, stdout="/dev/null"))
    for world in (first, second):
        wait_until(partial(procfs.children, world.pid), what="the rank")
    marker = secret.encode()
    assert marker in memory_of(first.pid)
    assert marker in memory_of(the_helper(helper))
    assert marker not in memory_of(second.pid)
    assert marker not in memory_of(find_fork_server(helper))
    for subreaper, shim in find_waiting(helper).items():
        assert marker not in memory_of(subreaper)
        assert marker not in memory_of(shim)


def test_a_stopped_process_of_the_user_delays_no_other_start(helper: Helper) -> None:
    """Its user may stop a shim as soon as it is the user's; the helper has its answer by then."""
    shim = helper.start_world(helper.request(argv=["/bin/sleep", "600"]))
    with acting_as(ALICE):
        os.kill(shim.pid, signal.SIGSTOP)
    other = helper.start_world(
        helper.request(BOB, 8, argv=["/bin/sleep", "600"], stdout="/dev/null")
    )
    assert runs(other.pid)


def test_a_shim_has_no_descriptor_of_the_helper(helper: Helper) -> None:
    shim = helper.start_world(helper.request(argv=["/bin/sleep", "600"]))
    wait_until(lambda: procfs.children(shim.pid), what="the rank")
    opened = {number: os.readlink(f"/proc/{shim.pid}/fd/{number}") for number in range(3)}
    log = str(helper.run / "jobs" / "7.1" / "shim.log")
    assert opened == {0: "/dev/null", 1: "/dev/null", 2: log}
