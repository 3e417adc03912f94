"""A controller that is only its side of the socket of users' shims."""

from __future__ import annotations

import json
import os
import socket
import struct
from pathlib import Path
from typing import Any, NamedTuple

from helperkit.identity import acting_as


class Caller(NamedTuple):
    """A shim that has connected."""

    sock: socket.socket
    pid: int
    uid: int


class FakeController:
    """Listens for shims as the controller's account, and answers what they send."""

    def __init__(self, folder: Path, uid: int) -> None:
        self.path = folder / "controller.sock"
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with acting_as(uid):
            self._listener.bind(str(self.path))
            self._listener.listen(16)
        os.chmod(self.path, 0o666)
        self._listener.settimeout(60)

    def accept(self) -> Caller:
        """Return the next shim that connects."""
        sock, _ = self._listener.accept()
        sock.settimeout(60)
        pid, uid, _ = struct.unpack(
            "3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )
        return Caller(sock, pid, uid)

    def finish(self, caller: Caller, ranks: int = 1) -> list[dict[str, Any]]:
        """Wait for the exits of a world, confirm them, and return them by rank."""
        exits: dict[int, dict[str, Any]] = {}
        with caller.sock, caller.sock.makefile("rb") as lines:
            while len(exits) < ranks:
                line = lines.readline()
                assert line, "the shim has ended before it reported all exits"
                for end in json.loads(line).get("exits", ()):
                    exits[end["rank"]] = end
            self.send(caller, op="exits_saved", ranks=list(exits))
            while lines.readline():
                pass
        return [exits[rank] for rank in sorted(exits)]

    def send(self, caller: Caller, **message: Any) -> None:
        """Send an order to a shim."""
        caller.sock.sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()
        self.path.unlink(missing_ok=True)
