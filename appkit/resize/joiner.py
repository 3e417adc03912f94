"""The side of a joining rank: sleep until GO, connect to the coordinator, wait for the MPI port.

No step uses MPI or the processor: the rank sleeps in ``poll``. If the shim or the coordinator has
gone away, the joining rank is not needed and ends at once.
"""

import base64
import contextlib
import select
import socket
from collections.abc import Callable
from typing import Any

from pliant.appkit.environment import Environment
from pliant.appkit.exit_without_finalize import end_now
from pliant.appkit.joining.protocol_numbers import MAX_UNPROVEN_BYTES, NUMBERS, join_mismatch
from pliant.appkit.joining.rendezvous_authentication import JoiningSide
from pliant.appkit.json_lines import JsonLines
from pliant.faults import failpoint, message
from pliant.protos.hmac_handshake import UnprovenServerError

_CONNECT_TIMEOUT_S = 20.0


class Joiner:
    """A joining rank's connections to its shim, the process that supervises it, and to rank 0."""

    def __init__(self, environment: Environment, control: JsonLines, rank: int) -> None:
        """Store what the rank needs to join; a later call connects to the coordinator.

        Args:
            environment: the environment of this process.
            control: the control socket, which connects this process to its shim.
            rank: the rank of this process in its own ``MPI.COMM_WORLD``.
        """
        self._environment = environment
        self._control = control
        self._rank = rank
        self._coordinator: JsonLines | None = None
        self._results: list[bytes] = []
        self._old_size = 0
        self._once_calls = 0

    def next_once_result(self) -> bytes:
        """Return the result, encoded, of the program's next call of ``job.once``.

        ``job.once`` runs a function only when the program starts. The running application sends its
        results to joining ranks.
        """
        self._connection()
        self._once_calls += 1
        if self._once_calls > len(self._results):
            end_now(1, "job.once: the running application has not come to this call")
        return self._results[self._once_calls - 1]

    def size_and_rank(self) -> tuple[int, int]:
        """Return the number of processes after the resize, and this process's rank among them."""
        self._connection()
        return self._old_size + len(self._environment.processors), self._old_size + self._rank

    def wait_at_loop(self, loop: int, fetch: Callable[[dict[str, Any]], bool]) -> str | None:
        """Wait at a loop until the coordinator lets this rank join, or sends it to a later loop.

        Args:
            loop: number of the loop.
            fetch: called with a description of files if arrays with ``constant=True`` are to be
                read before joining; reads them and returns whether that succeeded.

        Returns:
            The name of the MPI port to connect to; None if the application has left this loop.
        """
        coordinator = self._connection()
        self._send(coordinator, loop=loop)
        failpoint("appkit.newcomer.arrived")
        message = self._receive(coordinator)
        if "constant" in message:
            self._send(coordinator, fetched=fetch(message["constant"]))
            message = self._receive(coordinator)
        return None if message.get("skip") else str(message["port"])

    def report_refusal(self, reason: str) -> None:
        """Tell the coordinator why this rank cannot take part in the resize."""
        if self._coordinator is not None:
            self._send(self._coordinator, error=reason)

    def close(self) -> None:
        """Tell the coordinator that this rank has joined, and close the connection."""
        if self._coordinator is not None:
            with contextlib.suppress(OSError):
                self._coordinator.send(joined=True)
            self._coordinator.close()

    def _connection(self) -> JsonLines:
        if self._coordinator is None:
            for _ in message("appkit.newcomer.ready"):
                self._send(self._control, op="ready")
            order = self._await_go()
            failpoint("appkit.newcomer.go")
            self._coordinator = self._connect(str(order["address"]))
            self._prove(self._coordinator, order)
            welcome = self._receive(self._coordinator)
            self._check_version(welcome)
            self._old_size = int(welcome["size"])
            self._results = [base64.b64decode(text) for text in welcome["once"]]
        return self._coordinator

    def _prove(self, coordinator: JsonLines, order: dict[str, Any]) -> None:
        """Authenticate this rank and the coordinator to each other; end this process if that fails.

        Both prove that they know the secret of the resize without sending it. Nothing that arrives
        before the coordinator's proof is used.

        Args:
            coordinator: the connection to the coordinator.
            order: the server's GO (its order to carry out the resize), with the secret.
        """
        side = JoiningSide(order["secret"], order["resize"], self._rank)
        for _ in message("appkit.newcomer.hello"):
            opening = {"resize": order["resize"], "rank": self._rank, **side.opening}
            self._send(coordinator, **NUMBERS, **opening)
        challenge = self._receive(coordinator)
        try:
            answer = side.answer(challenge)
        except UnprovenServerError:
            end_now(
                1,
                f"what answers at {order['address']} does not prove that it is the running "
                "application: the secret of the resize was not sent to it",
            )
            raise
        self._send(coordinator, **answer)
        coordinator.signer, coordinator.limit = side.signer(), None

    def _check_version(self, welcome: dict[str, Any]) -> None:
        """End this process unless the protocol versions of both sides are compatible.

        ``welcome`` is the coordinator's message after the handshake, with its protocol numbers.
        """
        if "refused" in welcome:
            end_now(1, str(welcome["refused"]))
        numbers = (welcome.get(name) for name in ("protocol", "oldest_reader"))
        if reason := join_mismatch("the running application", *numbers):
            self.report_refusal(reason)
            end_now(1, reason)

    def _await_go(self) -> dict[str, Any]:
        while True:
            order = self._control.take()
            if order is None:
                if not self._control.read():
                    end_now(1)
            elif order.get("op") == "join" and order.get("resize") == self._environment.resize:
                return order

    def _connect(self, address: str) -> JsonLines:
        host, _, port = address.rpartition(":")
        try:
            sock = socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S)
        except OSError as error:
            end_now(1, f"cannot reach the application at {address}: {error}")
            raise
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return JsonLines(sock, MAX_UNPROVEN_BYTES)

    def _send(self, lines: JsonLines, **message: Any) -> None:
        try:
            lines.send(**message)
        except OSError:
            end_now(0)

    def _receive(self, coordinator: JsonLines) -> dict[str, Any]:
        """Return the coordinator's next message.

        End this process if the coordinator or the shim is gone.
        """
        poll = select.poll()
        poll.register(coordinator.fileno(), select.POLLIN)
        poll.register(self._control.fileno(), select.POLLIN)
        while True:
            try:
                message = coordinator.take()
            except ValueError as error:
                end_now(1, f"what answered is not what the running application sends: {error}")
                raise
            if message is not None:
                return message
            for descriptor, _ in poll.poll():
                if descriptor == coordinator.fileno() and not coordinator.read():
                    end_now(0)
                if descriptor == self._control.fileno() and not self._control.read():
                    end_now(1)
