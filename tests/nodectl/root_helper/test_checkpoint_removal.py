"""The helper removes checkpoints as the user of a job, on signed orders only."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from helperkit import ACCOUNT, ALICE, BOB, Helper, needs_root
from helperkit.identity import acting_as
from pliant.nodectl.controller.users.helper_client import HelperRefusedError
from pliant.protos.identity import keys
from testkit import wait_until

pytestmark = [needs_root, pytest.mark.timeout(180)]


@pytest.fixture
def saves(helper: Helper) -> Path:
    """Return a folder of checkpoints for all users."""
    folder = helper.base / "saves"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def plant(folder: Path, uid: int = ALICE) -> Path:
    """Make the checkpoints of a job; return their folder."""
    for path in (folder, folder / "save-1"):
        path.mkdir(mode=0o700)
    for name in ("manifest.json", "save-1/array"):
        (folder / name).write_text("data")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid)
    return folder


def test_the_folder_of_a_job_is_removed(helper: Helper, saves: Path) -> None:
    mine, other = plant(saves / "25f9.j7"), plant(saves / "25f9.j8")
    assert helper.ask_removal(helper.sign_removal(mine)) == ""
    assert os.listdir(saves) == [other.name]
    assert "removing" in helper.log()
    assert helper.ask_removal(helper.sign_removal(mine)) == ""  # as when an answer got lost


BAD: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "forged": ("signature", lambda: {"key": keys.create_order_key()}),
    "other node": ("node", lambda: {"node": "n8"}),
    "other cluster": ("cluster", lambda: {"cluster": "red"}),
    "expired": ("expired", lambda: {"issued": 1000, "expires": 1100}),
    "of root": ("user", lambda: {"uid": 0, "gid": 0}),
    "root's group": ("group", lambda: {"gid": 0}),
    "unknown user": ("unknown-user", lambda: {"uid": 6001, "gid": 6001}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_orders_remove_nothing(helper: Helper, saves: Path, name: str) -> None:
    refusal, changes = BAD[name]
    folder = plant(saves / "25f9.j7")
    with pytest.raises(HelperRefusedError) as refused:
        helper.ask_removal(helper.sign_removal(folder, **changes()))
    assert refused.value.refusal == refusal
    assert helper.refusals(refusal) == 1
    assert (folder / "save-1" / "array").exists()


@pytest.mark.case(59)
def test_an_order_is_carried_out_once(helper: Helper, saves: Path) -> None:
    folder = saves / "25f9.j7"
    order = helper.sign_removal(plant(folder))
    helper.ask_removal(order)
    plant(folder)
    for _ in range(2):
        with pytest.raises(HelperRefusedError) as refused:
            helper.ask_removal(order)
        assert refused.value.refusal == "replayed"
        assert (folder / "manifest.json").exists()
        helper.kill()
        helper.start()


def test_an_order_to_start_a_job_removes_nothing(helper: Helper, saves: Path) -> None:
    request = helper.request()
    with pytest.raises(HelperRefusedError) as refused:
        helper.ask_removal(helper.sign(request))
    assert refused.value.refusal == "format"
    with pytest.raises(HelperRefusedError) as refused:
        helper.ask_start(helper.sign_removal(saves / "25f9.j7"), request)
    assert refused.value.refusal == "format"
    assert helper.started() == []


@pytest.mark.case(60)
def test_links_are_not_followed(helper: Helper, saves: Path) -> None:
    keep = plant(helper.base / "home")  # of alice, in a place that no order names
    link = saves / "25f9.j7"
    link.symlink_to(keep)
    os.chown(link, BOB, BOB, follow_symlinks=False)
    assert helper.ask_removal(helper.sign_removal(link)) != ""
    assert link.is_symlink()
    link.unlink()
    folder = plant(link)
    (folder / "save-1" / "inside").symlink_to(keep)
    (folder / "inside").symlink_to(keep)
    assert helper.ask_removal(helper.sign_removal(folder)) == ""
    assert not folder.exists()
    assert (keep / "save-1" / "array").read_text() == "data"


def test_a_folder_of_another_user_stays(helper: Helper, saves: Path) -> None:
    folder = plant(saves / "25f9.j7", BOB)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777)  # so that only the check of the owner protects it
    assert f"user {BOB}" in helper.ask_removal(helper.sign_removal(folder))
    assert (folder / "save-1" / "array").exists()


def test_what_the_user_may_not_remove_is_named(helper: Helper, saves: Path) -> None:
    folder = plant(saves / "25f9.j7")
    closed = folder / "closed"
    closed.mkdir(mode=0o755)
    (closed / "of root").touch()
    assert helper.ask_removal(helper.sign_removal(folder)) != ""
    assert (closed / "of root").exists()
    assert not (folder / "manifest.json").exists()


def stopped_removal(helper: Helper, folder: Path, controller: socket.socket) -> psutil.Process:
    """Begin to remove a large folder of alice, who stops the process."""
    assert helper.process is not None
    plant(folder)
    for number in range(20_000):
        (folder / f"{number}").touch()
    children = psutil.Process(helper.process.pid).children
    before = set(children(recursive=True))
    order = helper.sign_removal(folder, job=int(folder.name[-1]))
    with acting_as(ACCOUNT):
        controller.connect(str(helper.run / "helper.sock"))
    controller.send(json.dumps({"op": "remove", "order": order.hex()}).encode())

    def find() -> psutil.Process | None:
        assert folder.exists(), "the removal has ended before it was stopped"
        for each in set(children(recursive=True)) - before:
            with suppress(psutil.NoSuchProcess):
                if each.uids().real == ALICE:
                    each.suspend()
                    return each
        return None

    found = wait_until(find, what="the process of the removal", every=0.001)
    assert found is not None
    return found


def test_a_user_who_stops_removals_does_not_block_other_users(helper: Helper, saves: Path) -> None:
    sockets = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in (1, 2)]
    stopped = [
        stopped_removal(helper, saves / f"25f9.j{number}", sock)
        for number, sock in enumerate(sockets, start=1)
    ]
    with pytest.raises(HelperRefusedError) as refused:
        helper.ask_removal(helper.sign_removal(plant(saves / "25f9.j3"), job=3))
    assert refused.value.refusal == "rate"
    theirs = helper.sign_removal(plant(saves / "25f9.j4", BOB), job=4, uid=BOB, gid=BOB)
    assert helper.ask_removal(theirs) == ""
    for process, sock in zip(stopped, sockets, strict=True):
        process.resume()
        assert json.loads(sock.recv(4096)) == {"problem": ""}
        sock.close()
    assert os.listdir(saves) == ["25f9.j3"]
    wait_until(lambda: not any(each.is_running() for each in stopped), what="the processes")
    assert helper.ask_removal(helper.sign_removal(saves / "25f9.j3", job=3)) == ""
