"""The root helper of a node as a real process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from helperkit.identity import acting_as
from helperkit.processes import end_all_naming
from helperkit.programs import python_for_all
from pliant.nodectl.controller.users.helper_client import HelperClient, encode_content
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.world_folder import StartRequest
from pliant.protos.identity import keys
from pliant.protos.signed_orders.launch_content import LaunchContent, signed_variables
from pliant.protos.signed_orders.launch_order import LaunchOrder
from pliant.protos.signed_orders.removal_order import RemovalOrder
from pliant.protos.signed_orders.signature_and_validity import new_nonce, sign
from testkit import wait_until

#: The controller's account, and two users. Both are in the group RESEARCH, too.
ACCOUNT, ALICE, BOB, RESEARCH = 65534, 5001, 5002, 5003
CLUSTER, NODE = "blue", "n7"
#: Of the token, the list of nodes, and the key of the checkpoints.
SECRETS = b"token", b"127.0.0.1:1\n", b"key"

_PASSWD = """root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
alice:x:5001:5001:Alice:/nonexistent:/bin/sh
bob:x:5002:5002:Bob:/nonexistent:/bin/sh
wheel:x:5004:5004:member of root's group:/nonexistent:/bin/sh
"""
_GROUP = """root:x:0:wheel
nogroup:x:65534:
alice:x:5001:
bob:x:5002:
research:x:5003:alice,bob
wheel:x:5004:
"""

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="only root can start processes of other users (and `unshare` is needed)",
)


class Helper:
    """A root helper with a folder of its own; its host has the accounts of `_PASSWD`."""

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="pliant-helper-"))
        self.base.chmod(0o755)
        self.run, self.state = self.base / "run", self.base / "state"
        self.etc, self.output = self.base / "etc", self.base / "output"
        self.etc.mkdir()
        self.output.mkdir()
        self.output.chmod(0o777)
        self.key = keys.create_order_key()
        (self.etc / "order.pub").write_text(keys.format_public_key(self.key.public_key()))
        self.accounts = self.base / "accounts"
        self.accounts.mkdir()
        (self.accounts / "passwd").write_text(_PASSWD)
        (self.accounts / "group").write_text(_GROUP)
        self.configure()
        try:
            self.python = python_for_all(self.base)
        except BaseException:
            shutil.rmtree(self.base)
            raise
        self.process: subprocess.Popen[bytes] | None = None

    def configure(self, **changes: Any) -> None:
        """Write the settings; ``changes`` replace some."""
        settings = {"cluster": CLUSTER, "node": NODE, "account": ACCOUNT, **changes}
        (self.etc / "helper.json").write_text(json.dumps(settings))

    # ------------------------------------------------------------------ the process

    def command(self, *options: str) -> list[str]:
        """Return the command of the helper."""
        folders = {"config": self.etc, "run": self.run, "state": self.state}
        named = [word for name, path in folders.items() for word in (f"--{name}-dir", str(path))]
        helper = [self.python, "-I", "-m", "pliant.nodectl.root_helper", *named, *options]
        return self.in_host(helper)

    def in_host(self, program: list[str]) -> list[str]:
        """Return a command in a mount namespace with the accounts of the helper's host.

        A mount on a single file ends when that file is replaced on the host, as the
        installation of a package does with ``/etc/passwd``; it is used only where the
        kernel refuses to mount an overlay.
        """
        overlay = f"mount -t overlay -o ro,lowerdir={self.accounts}:/etc accounts /etc 2>&-"
        files = " && ".join(
            f"mount --bind {self.accounts / name} /etc/{name}" for name in ("passwd", "group")
        )
        script = f'set -e; {overlay} || {{ {files}; }}; exec "$@"'
        unshare = ["unshare", "--mount", "--propagation", "private"]
        return [*unshare, "sh", "-c", script, "sh", *program]

    def start_with_secrets(self) -> None:
        """Start it with a key in its session keyring and with inheritable capabilities."""
        code = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
assert libc.syscall(250, 1, None) > 0
assert libc.syscall(248, b"user", b"pliant-test", b"secret", 6, -3) > 0
header, sets = struct.pack("=Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
assert libc.capget(header, sets) == 0
words = list(struct.unpack("=6I", sets.raw))
words[2] |= 1 << 21
sets.raw = struct.pack("=6I", *words)
assert libc.capset(header, sets) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""
        self.start([sys.executable, "-c", code])

    def start(self, before: Sequence[str] = ()) -> None:
        """Start it, and wait until it answers.

        Args:
            before: a command that executes the helper.
        """
        with open(self.base / "log", "ab") as log:
            self.process = subprocess.Popen([*before, *self.command()], stderr=log)
        wait_until(lambda: self.process_ended() or self._answers(), what="the helper")
        assert not self.process_ended(), self.log()

    def process_ended(self) -> bool:
        """Return whether it does not run."""
        return self.process is None or self.process.poll() is not None

    def _answers(self) -> bool:
        return "serving" in self.log().rpartition("---")[2]

    def kill(self) -> None:
        """Kill the helper, and nothing that it has started."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        with open(self.base / "log", "a", encoding="utf-8") as log:
            log.write("---\n")

    def close(self) -> None:
        """End the helper and all that it has started, and remove its folder.

        This works in each state in which a test may have failed, also if the helper was killed.
        """
        try:
            if not self.process_ended():
                self.kill()
            end_all_naming(self.base)
        finally:
            shutil.rmtree(self.base, ignore_errors=True)

    def log(self) -> str:
        """Return what the helper has written."""
        return (self.base / "log").read_text() if (self.base / "log").exists() else ""

    def refusals(self, kind: str) -> int:
        """Return how many refusals of a kind are in the log."""
        return self.log().count(f"refused ({kind})")

    def started(self) -> list[str]:
        """Return the worlds that run."""
        return os.listdir(self.run / "started")

    # ------------------------------------------------------------------ requests

    def request(self, uid: int = ALICE, job: int = 7, **changes: Any) -> StartRequest:
        """Return a request to start one rank that writes who it is."""
        world = changes.pop("world", f"{job}.1.0")
        folder = self.run / "jobs" / f"{job}.1" / world
        environment = {
            "PATH": "/usr/bin:/bin",
            "PLIANT_CHECKPOINT": "",
            "PLIANT_TOKEN_FILE": str(folder / "token"),
            **changes.pop("environment", {}),
        }
        request = StartRequest(
            world=world,
            job=job,
            run=1,
            resize=0,
            type="script",
            size=1,
            ranks=[(0, 0)],
            argv=changes.pop("argv", ["/bin/sh", "-c", "id -u; id -g; id -G"]),
            environment=environment,
            directory="/",
            stdout=str(self.output / "out"),
            uid=uid,
        )
        return replace(request, **changes)

    def sign(self, request: StartRequest, **changes: Any) -> bytes:
        """Return the server's order for a request; ``changes`` replace fields, or ``key``."""
        now = int(time.time())
        key = changes.pop("key", self.key)
        fields: dict[str, Any] = {
            "cluster": CLUSTER,
            "node": NODE,
            "generation": 3,
            "job": request.job,
            "run": request.run,
            "epoch": 1,
            "uid": request.uid,
            "gid": request.uid,
            "groups": (),
            "digest": covered(request).digest(),
            "issued": now,
            "expires": now + 120,
            "nonce": new_nonce(),
        }
        return sign(LaunchOrder(**fields | changes), key)

    def client(self) -> HelperClient:
        """Return a client, for use inside `acting_as`."""
        return HelperClient(self.run / "helper.sock")

    def ask_start(
        self, order: bytes, request: StartRequest, uid: int = ACCOUNT, **content: bytes
    ) -> ProcessIdentity:
        """Ask for the start of a world as the controller does; return its shim."""
        names = ("token", "nodes", "checkpoint_key")
        secrets: dict[str, Any] = dict(zip(names, SECRETS, strict=True))
        data = encode_content(request, **(secrets | content))
        with acting_as(uid):
            return self.client().start(order, data)

    def sign_removal(self, folder: Path, uid: int = ALICE, **changes: Any) -> bytes:
        """Return the server's order to remove the checkpoints of job 7; see `sign`."""
        now = int(time.time())
        key = changes.pop("key", self.key)
        fields: dict[str, Any] = {
            "cluster": CLUSTER,
            "node": NODE,
            "folder": str(folder),
            "generation": 3,
            "job": 7,
            "uid": uid,
            "gid": uid,
            "issued": now,
            "expires": now + 120,
            "nonce": new_nonce(),
        }
        return sign(RemovalOrder(**fields | changes), key)

    def ask_removal(self, order: bytes, uid: int = ACCOUNT) -> str:
        """Ask for a removal as the controller does; return why something is left."""
        with acting_as(uid):
            return self.client().remove_checkpoints(order)

    def start_world(self, request: StartRequest) -> ProcessIdentity:
        """Start a world by a right order; return its shim."""
        return self.ask_start(self.sign(request), request)

    def end(self, world: str) -> bool:
        """Ask for the end of a world."""
        with acting_as(ACCOUNT):
            return self.client().end(world)

    def find(self, world: str) -> ProcessIdentity | None:
        """Ask for a world."""
        with acting_as(ACCOUNT):
            return self.client().find(world)


def covered(request: StartRequest) -> LaunchContent:
    """Return what an order for a request covers."""
    return LaunchContent(
        world=request.world,
        resize=request.resize,
        type=request.type,
        size=request.size,
        ranks=tuple(request.ranks),
        argv=tuple(request.argv),
        environment=signed_variables(request.environment),
        directory=request.directory,
        stdin=request.stdin,
        stdout=request.stdout,
        stderr=request.stderr,
        umask=request.umask,
        truncate_before=request.truncate_before,
        checkpoint=request.environment["PLIANT_CHECKPOINT"],
        secrets=SECRETS,
        memory_bytes=request.memory_bytes,
        devices={kind: tuple(chain(*ranks)) for kind, ranks in request.devices.items()},
        record_load_s=request.record_load_s,
        first_rank=request.first_rank,
    )
