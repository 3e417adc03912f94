"""What the helper refuses: nothing is executed, and each refusal is in the log once."""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helperkit import ACCOUNT, ALICE, BOB, FakeController, Helper, needs_root
from helperkit.helper import SECRETS
from helperkit.identity import acting_as
from pliant.nodectl.controller.users.helper_client import (
    HelperRefusedError,
    HelperUnavailableError,
    encode_content,
    sealed_file,
)
from pliant.nodectl.host import cgroup
from pliant.nodectl.host.cgroup_hierarchies import base
from pliant.nodectl.world_folder import StartRequest
from pliant.protos.identity import keys
from pliant.protos.signed_orders.signature_and_validity import SIGNATURE_BYTES
from testkit import wait_until

pytestmark = [needs_root, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def shared() -> Any:
    helper = Helper()
    try:
        helper.start()
        yield helper
    finally:
        helper.close()


def is_refused(
    helper: Helper, kind: str, order: bytes, request: StartRequest, **content: bytes
) -> None:
    """Check that nothing is executed, and that the log has one line about it."""
    logged = helper.refusals(kind)
    with pytest.raises(HelperRefusedError) as refused:
        helper.ask_start(order, request, ACCOUNT, **content)
    assert refused.value.refusal == kind, refused.value
    assert helper.refusals(kind) == logged + 1
    assert helper.started() == []
    assert not Path(request.stdout).exists()
    assert "token" not in helper.log()


#: By kind of refusal: fields of the order that make it bad.
BAD_ORDERS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "forged": ("signature", lambda: {"key": keys.create_order_key()}),
    "expired": ("expired", lambda: _lifetime(-400)),
    "from the future": ("not-yet-valid", lambda: _lifetime(400)),
    "other node": ("node", lambda: {"node": "n8"}),
    "other cluster": ("cluster", lambda: {"cluster": "red"}),
    "root's group": ("group", lambda: {"gid": 0}),
    "other main group": ("group", lambda: {"gid": BOB}),
    "other job": ("digest", lambda: {"job": 8}),
    "other run": ("digest", lambda: {"run": 2}),
    "other user": ("digest", lambda: {"uid": BOB, "gid": BOB}),
}


def _lifetime(shift: int) -> dict[str, int]:
    now = int(time.time()) + shift
    return {"issued": now, "expires": now + 120}


@pytest.mark.case(59)
@pytest.mark.parametrize("name", BAD_ORDERS)
def test_a_bad_order(shared: Helper, name: str) -> None:
    kind, changes = BAD_ORDERS[name]
    request = shared.request()
    is_refused(shared, kind, shared.sign(request, **changes()), request)


#: What differs from what was signed.
CHANGES: dict[str, Callable[[StartRequest], dict[str, Any]]] = {
    "argv": lambda request: {"argv": [*request.argv, "more"]},
    "environment": lambda request: {"environment": {**request.environment, "LD_PRELOAD": "/x"}},
    "variable": lambda request: {"environment": {**request.environment, "PATH": "/tmp"}},
    "checkpoint": lambda request: {
        "environment": {**request.environment, "PLIANT_CHECKPOINT": "/tmp"}
    },
    "directory": lambda _: {"directory": "/tmp"},
    "stdin": lambda _: {"stdin": "/etc/shadow"},
    "stderr": lambda _: {"stderr": "/tmp/x"},
    "umask": lambda _: {"umask": 0},
    "truncate": lambda _: {"truncate_before": 1.0},
    "type": lambda _: {"type": "mpi"},
    "ranks": lambda _: {"ranks": [(0, 0), (1, 1)]},
    "size": lambda _: {"size": 2},
    "world": lambda _: {"world": "7.1.9"},
    "memory": lambda _: {"memory_bytes": 1 << 40},
    "devices": lambda _: {"devices": {"gpu": [[0]]}},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_start_that_was_not_signed(shared: Helper, name: str) -> None:
    request = shared.request()
    changed = replace(request, **CHANGES[name](request))
    is_refused(shared, "digest", shared.sign(request), changed)


def test_secrets_that_were_not_signed(helper: Helper) -> None:
    """A helper of its own, because the log has at most 20 refusals of a kind in a minute."""
    request = helper.request()
    for secret in ("token", "nodes", "checkpoint_key"):
        is_refused(helper, "digest", helper.sign(request), request, **{secret: b"other"})


@pytest.mark.case(58)
@pytest.mark.parametrize("uid", [0, 1, 999])
def test_users_of_the_system(shared: Helper, uid: int) -> None:
    request = shared.request(uid)
    is_refused(shared, "user", shared.sign(request), request)


def test_the_account_of_the_controller(shared: Helper) -> None:
    request = shared.request(ACCOUNT)
    with pytest.raises(HelperRefusedError) as refused:
        shared.start_world(request)
    assert refused.value.refusal == "user"
    assert not Path(request.stdout).exists()


@pytest.mark.case(58)
def test_a_user_whom_the_host_does_not_know(shared: Helper) -> None:
    request = shared.request(6000)
    is_refused(shared, "unknown-user", shared.sign(request), request)


def test_an_order_of_another_version(shared: Helper) -> None:
    request = shared.request()
    text = shared.sign(request)[:-SIGNATURE_BYTES].replace(b"order 2", b"order 1", 1)
    is_refused(shared, "version", text + shared.key.sign(text), request)


def test_limits_of_root_that_a_controller_cannot_raise(helper: Helper) -> None:
    helper.kill()
    helper.configure(cpus="0", max_tasks=300)
    helper.start()
    request = helper.request(cpus=[[0, 1]])
    is_refused(helper, "cpus", helper.sign(request), request)
    bounded = helper.request(max_tasks=100_000, argv=["/bin/sleep", "600"])
    shim = helper.start_world(bounded)
    with acting_as(ACCOUNT), pytest.raises(HelperRefusedError) as refused:
        helper.client().limit_cpus(bounded.world, [0, 1])
    assert refused.value.refusal == "cpus"
    for name, file, limit in (("pids", "pids.max", "300"), ("cpuset", "cpuset.cpus", "0")):
        where = base(name)
        if where is not None:
            group = Path(cgroup.group_of(where, shim), file)
            assert group.read_text().strip() == limit


def test_a_member_of_roots_group(shared: Helper) -> None:
    request = shared.request(5004)
    is_refused(shared, "group", shared.sign(request), request)


@pytest.mark.parametrize("world", ["../7.1.0", "/tmp/x", ".", ""])
def test_a_world_whose_name_is_a_path(shared: Helper, world: str) -> None:
    request = shared.request(world=world)
    is_refused(shared, "format", shared.sign(request), request)


@pytest.mark.case(59)
def test_an_order_is_carried_out_once_also_after_a_restart(
    helper: Helper, controller: FakeController
) -> None:
    request = helper.request()
    order = helper.sign(request)
    helper.ask_start(order, request)
    controller.finish(controller.accept())
    wait_until(lambda: not helper.started(), what="the end of the world")
    Path(request.stdout).unlink()
    is_refused(helper, "replayed", order, request)
    helper.kill()
    helper.start()
    is_refused(helper, "replayed", order, request)


@pytest.mark.case(59)
def test_an_older_generation_is_refused_also_after_a_restart(
    helper: Helper, controller: FakeController
) -> None:
    request = helper.request()
    helper.ask_start(helper.sign(request, generation=5), request)
    controller.finish(controller.accept())
    wait_until(lambda: not helper.started(), what="the end of the world")
    Path(request.stdout).unlink()
    helper.kill()
    helper.start()
    is_refused(helper, "generation", helper.sign(request, generation=4), request)


def test_a_refused_order_is_not_used_up(helper: Helper, controller: FakeController) -> None:
    request = helper.request()
    order = helper.sign(request)
    is_refused(helper, "digest", order, replace(request, argv=["other"]))
    helper.ask_start(order, request)
    assert controller.finish(controller.accept())[0]["code"] == 0


def test_a_world_that_runs_is_not_started_again(helper: Helper) -> None:
    request = helper.request(argv=["/bin/sleep", "600"])
    shim = helper.start_world(request)
    with pytest.raises(HelperRefusedError) as refused:
        helper.start_world(request)
    assert refused.value.refusal == "running"
    assert helper.find("7.1.0") == shim


def test_the_folder_of_another_users_job(helper: Helper) -> None:
    helper.start_world(helper.request(ALICE, argv=["/bin/sleep", "600"]))
    request = helper.request(BOB, world="7.1.4")
    with pytest.raises(HelperRefusedError) as refused:
        helper.start_world(request)
    assert refused.value.refusal == "job-folder"
    assert helper.started() == ["7.1.0"]


@pytest.mark.case(60)
@pytest.mark.parametrize("kind", ["link", "file", "hard link", "fifo", "open", "other user"])
def test_something_else_in_place_of_the_jobs_folder(helper: Helper, kind: str) -> None:
    path, victim = helper.run / "jobs" / "7.1", helper.base / "victim"
    # Nothing is removed meanwhile.
    helper.start_world(helper.request(BOB, 9, argv=["/bin/sleep", "600"], stdout="/dev/null"))
    victim.mkdir()
    os.chown(victim, ALICE, ALICE)
    match kind:
        case "link":
            path.symlink_to(victim)
        case "file":
            path.write_text("")
        case "hard link":
            (helper.base / "file").write_text("")
            path.hardlink_to(helper.base / "file")
        case "fifo":
            os.mkfifo(path)
        case "open":
            path.mkdir()
            os.chown(path, ALICE, ALICE)
            path.chmod(0o770)
        case "other user":
            path.mkdir(mode=0o700)
            os.chown(path, BOB, BOB)
    request = helper.request(ALICE)
    refusal = ""
    try:
        helper.start_world(request)
    except HelperRefusedError as error:
        refusal = error.refusal
    assert os.listdir(victim) == []
    if refusal:
        assert refusal == "job-folder"
        assert helper.started() == ["9.1.0"]
        assert not Path(request.stdout).exists()
    else:  # the helper had removed it before, because no job used it
        assert (path.lstat().st_uid, stat.S_IMODE(path.lstat().st_mode)) == (ALICE, 0o700)


@pytest.mark.case(60)
@pytest.mark.parametrize("kind", ["link", "hard link", "fifo", "folder"])
def test_something_else_in_place_of_the_output(
    helper: Helper, controller: FakeController, kind: str
) -> None:
    request = helper.request()
    path, victim = Path(request.stdout), helper.base / "victim"
    victim.write_text("of root\n")
    match kind:
        case "link":
            path.symlink_to(victim)
        case "hard link":
            path.hardlink_to(victim)
        case "fifo":
            os.mkfifo(path)
            os.chown(path, ALICE, ALICE)
        case "folder":
            path.mkdir()
    helper.start_world(request)
    (end,) = controller.finish(controller.accept())
    assert end["code"] == 126
    assert "output file" in end["reason"]
    assert victim.read_text() == "of root\n"
    assert victim.stat().st_uid == 0


@pytest.mark.case(60)
def test_a_log_that_the_user_has_replaced(helper: Helper, controller: FakeController) -> None:
    victim = helper.base / "victim"
    victim.write_text("of root\n")
    folder = helper.run / "jobs" / "7.1"
    plant = f"rm -f {folder}/shim.log; ln -s {victim} {folder}/shim.log; echo; exec sleep 600"
    first = helper.request(argv=["/bin/sh", "-c", plant])
    helper.start_world(first)
    connected = controller.accept()
    wait_until(lambda: Path(first.stdout).exists() and Path(first.stdout).stat().st_size)
    helper.start_world(helper.request(world="7.1.4"))
    assert controller.finish(controller.accept())[0]["code"] == 0
    connected.sock.close()
    assert victim.read_text() == "of root\n"


@pytest.mark.parametrize("uid", [0, ALICE])
def test_only_the_controllers_account_may_ask(shared: Helper, uid: int) -> None:
    request = shared.request()
    order, logged = shared.sign(request), shared.refusals("peer")
    os.chmod(shared.run / "helper.sock", 0o666)  # its mode keeps others out, too
    with pytest.raises(HelperUnavailableError):
        shared.ask_start(order, request, uid=uid)
    wait_until(lambda: shared.refusals("peer") == logged + 1)
    assert shared.started() == []


def test_the_socket_is_the_controllers(shared: Helper) -> None:
    found = (shared.run / "helper.sock").lstat()
    assert found.st_uid == ACCOUNT


def ask_raw(helper: Helper, data: bytes, handles: list[int]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(60)
        with acting_as(ACCOUNT):
            sock.connect(str(helper.run / "helper.sock"))
        socket.send_fds(sock, [data], handles)
        answer: dict[str, Any] = json.loads(sock.recv(1 << 16))
        return answer


@pytest.mark.parametrize(
    "data",
    [b"x", b"[]", b'{"op": 3}', b'{"op": "start"}', b'{"op":"start","order":"zz"}', b"[" * 40_000,
     b"\xff\xfe", b'{"op":"find"}' + b" " * 60_000],
    ids=range(8),
)  # fmt: skip
def test_messages_that_are_none(shared: Helper, data: bytes) -> None:
    assert ask_raw(shared, data, [])["refused"] == "message"
    assert shared.find("7.1.0") is None


def test_a_content_that_could_still_change(shared: Helper, tmp_path: Path) -> None:
    request = shared.request()
    order = shared.sign(request)
    message = json.dumps({"op": "start", "order": order.hex()}).encode()
    path = tmp_path / "content"
    path.write_bytes(encode_content(request, b"token", b"127.0.0.1:1\n", b"key"))
    unsealed = os.memfd_create("content", os.MFD_ALLOW_SEALING)
    os.write(unsealed, path.read_bytes())
    with open(path, "rb") as file:
        for handle in (file.fileno(), unsealed):
            answer = ask_raw(shared, message, [handle])
            assert answer["refused"] == "format", answer
        assert ask_raw(shared, message, [unsealed] * 4)["refused"] == "message"
    os.close(unsealed)


@pytest.mark.parametrize(
    "changes",
    [{"argv": "id"}, {"argv": [3]}, {"environment": []}, {"truncate_before": 10**400},
     {"ranks": [[0]]}, {"max_tasks": "x"}, {"stdout": None}],
    ids=range(7),
)  # fmt: skip
def test_values_of_another_type(shared: Helper, changes: dict[str, Any]) -> None:
    request = shared.request()
    order, record = shared.sign(request), json.loads(encode_content(request, *SECRETS))
    record["request"] |= changes
    handle = sealed_file(json.dumps(record).encode())
    message = json.dumps({"op": "start", "order": order.hex()}).encode()
    assert ask_raw(shared, message, [handle])["refused"] in {"format", "digest"}
    assert shared.started() == []
    os.close(handle)


@pytest.mark.parametrize("content", [b"{}", b"[]", b"x", b'{"request": 3}', b"[" * 100_000])
def test_a_content_that_is_damaged(shared: Helper, content: bytes) -> None:
    order = shared.sign(shared.request())
    handle = sealed_file(content)
    message = json.dumps({"op": "start", "order": order.hex()}).encode()
    assert ask_raw(shared, message, [handle])["refused"] == "format"
    os.close(handle)


def test_too_many_requests(helper: Helper) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(60)
        with acting_as(ACCOUNT):
            sock.connect(str(helper.run / "helper.sock"))
        answers = []
        for _ in range(3000):
            sock.send(b'{"op":"find","world":"1.1.0"}')
            answers.append(json.loads(sock.recv(1 << 16)))
    # A slow machine does not send more than are allowed.
    refused = [answer for answer in answers if answer.get("refused") == "rate"]
    assert helper.refusals("rate") == min(len(refused), 20)
