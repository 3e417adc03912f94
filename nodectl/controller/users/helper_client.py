"""Requests to the root helper of this node, which starts worlds as the users of their jobs.

Each request opens a connection of its own, so nothing has to be done when the helper restarts. The
functions that wait run in threads, because the helper writes to the disk before it starts anything.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pliant.core.support.base_error import PliantError
from pliant.nodectl.host.procfs import ProcessIdentity, boot_id
from pliant.nodectl.world_folder import StartRequest
from pliant.protos.daemons.peer_credentials import peer_uid
from pliant.protos.signed_orders.launch_order import VERSION

#: Seconds that a request may take.
TIMEOUT_S = 60.0
#: Seconds that the removal of checkpoints may take.
REMOVAL_TIMEOUT_S = 300.0
_MAX_ANSWER = 1 << 16
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class HelperUnavailableError(PliantError):
    """The root helper of this node does not answer."""


class HelperRefusedError(PliantError):
    """The root helper refused a request; ``refusal`` is the reason as a code for programs."""

    def __init__(self, refusal: str, reason: str) -> None:
        super().__init__(reason)
        self.refusal = refusal


class HelperClient:
    """Sends the controller's requests to the root helper, over a unix socket."""

    def __init__(self, path: Path, owner: int = 0) -> None:
        """Store the address of the helper's socket; each request opens its own connection.

        Args:
            path: the path of the helper's socket.
            owner: the account that must listen there.
        """
        self.path = path
        self._owner = owner
        #: As the helper said last; None if it has not answered.
        self._order_version: int | None = None

    def describe(self) -> dict[str, str]:
        """Return the helper's node and cluster, and the folder in which it makes folders of jobs.

        The keys are ``node``, ``cluster`` and ``jobs``, which is the path of that folder.

        Raises:
            HelperUnavailableError, HelperRefusedError: there is no answer, or a refusal.
        """
        found = self._ask({"op": "describe"})
        self._order_version = int(found.get("orders", "0"))
        return found

    @property
    def order_version(self) -> int:
        """Return the version of launch orders that the helper carries out.

        0 if the helper is too old to report it; the version of this program if no helper has
        answered yet.
        """
        if self._order_version is None:
            with suppress(HelperUnavailableError, HelperRefusedError):
                self.describe()
        return VERSION if self._order_version is None else self._order_version

    def controllers(self) -> dict[str, str]:
        """Return the name of each cgroup controller, with the cgroup version that the helper uses.

        The version is empty if the helper cannot use the controller. If the helper does not answer,
        or refuses, the mapping is empty.
        """
        try:
            found = self._ask({"op": "controllers"})
        except (HelperUnavailableError, HelperRefusedError):
            return {}
        return {name: str(version) for name, version in found.items()}

    def find_problem(self) -> str:
        """Return why the root helper does not answer; empty if it does."""
        try:
            self.describe()
        except (HelperUnavailableError, HelperRefusedError) as error:
            return str(error)
        return ""

    def start(self, order: bytes, content: bytes) -> ProcessIdentity:
        """Order the root helper to start a set of ranks; return the process of their shim.

        Args:
            order: the launch order, signed by the server.
            content: the content of the request, as `encode_content` returns it.

        Raises:
            HelperRefusedError: nothing was started.
            HelperUnavailableError: it is not known whether they were started; ask `find`.
        """
        handle = sealed_file(content)
        try:
            answer = self._ask({"op": "start", "order": order.hex()}, handle)
        finally:
            os.close(handle)
        return ProcessIdentity(boot_id(), answer["shim"], answer["start"])

    def find(self, world: str) -> ProcessIdentity | None:
        """Return the shim of the ranks called ``world``; None if none of their processes is left.

        Raises:
            HelperUnavailableError, HelperRefusedError: there is no answer, or a refusal.
        """
        answer = self._ask({"op": "find", "world": world})
        return ProcessIdentity(boot_id(), answer["shim"], answer["start"]) if answer else None

    def end(self, world: str) -> bool:
        """Order the root helper to kill all processes of the set of ranks called ``world``.

        Returns:
            Whether the helper still found such processes; False if they had ended before.

        Raises:
            HelperUnavailableError, HelperRefusedError: there is no answer, or a refusal.
        """
        return bool(self._ask({"op": "end", "world": world})["found"])

    def limit_cpus(self, world: str, cpus: Sequence[int]) -> bool:
        """Restrict the processes of the ranks called ``world`` to ``cpus``.

        Returns:
            Whether the kernel enforces this.

        Raises:
            HelperUnavailableError, HelperRefusedError: there is no answer, or a refusal.
        """
        answer = self._ask({"op": "cpus", "world": world, "cpus": list(cpus)})
        return bool(answer["enforced"])

    def remove_checkpoints(self, order: bytes) -> str:
        """Order the root helper to remove a job's checkpoints with the rights of its user.

        Args:
            order: the order to remove them, signed by the server.

        Returns:
            Why some checkpoints are left; empty if none are.

        Raises:
            HelperUnavailableError, HelperRefusedError: there is no answer, or a refusal.
        """
        answer = self._ask({"op": "remove", "order": order.hex()}, timeout_s=REMOVAL_TIMEOUT_S)
        return str(answer["problem"])

    def _ask(
        self,
        message: dict[str, Any],
        handle: int | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> dict[str, Any]:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                sock.settimeout(timeout_s)
                sock.connect(str(self.path))
                if peer_uid(sock) != self._owner:
                    raise HelperUnavailableError(f"{self.path}: another account listens there")
                data = json.dumps(message).encode("ascii")
                socket.send_fds(sock, [data], [] if handle is None else [handle])
                received = sock.recv(_MAX_ANSWER)
        except OSError as error:
            text = f"{self.path}: the root helper does not answer: {error.strerror or error}"
            raise HelperUnavailableError(text) from None
        if not received:
            raise HelperUnavailableError(f"{self.path}: the root helper closed the connection")
        answer: dict[str, Any] = json.loads(received)
        if "refused" in answer:
            raise HelperRefusedError(answer["refused"], answer["reason"])
        return answer


def encode_content(
    request: StartRequest,
    token: bytes,
    nodes: bytes,
    checkpoint_key: bytes,
    access: tuple[str, bytes] | None = None,
) -> bytes:
    """Return the content of a request to start ranks, which helper and shim read.

    The signed launch order covers all of it except ``access``.

    Args:
        request: the request that the shim reads.
        token: the secret token of the run.
        nodes: the nodes of the job, with a line ``host:slots`` for each.
        checkpoint_key: the key of the job's checkpoints.
        access: the server's address, and the root certificates (PEM) that applications trust; None
            if they do not connect over TLS.
    """
    files = {"token": token, "nodes": nodes, "checkpoint_key": checkpoint_key}
    if access is not None:
        files |= {"address": access[0].encode(), "roots": access[1]}
    texts = {name: value.hex() for name, value in files.items()}
    return json.dumps({"request": request.to_record(), **texts}).encode("ascii")


def sealed_file(content: bytes) -> int:
    """Return a descriptor of a file in memory that nobody can change any more."""
    handle = os.memfd_create("pliant-request", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, _SEALS)
    return handle
