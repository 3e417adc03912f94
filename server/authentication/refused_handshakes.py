"""Log connections that TLS refused, which gRPC for Python does not report.

The library of gRPC writes a line for each of them to standard error, without limit and without the
address of the peer: a stranger could fill the disk. So these lines are off (``GRPC_VERBOSITY``),
and the connections are counted instead.
"""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

#: A handshake that has not led to a stream for this long was refused, or sent nothing, seconds.
INTERVAL_S = 15.0


class RefusedHandshakes:
    """Counts TLS handshakes on a port and the streams opened after them, to log how many failed."""

    def __init__(self, port: str) -> None:
        """Start to count handshakes; ``port`` is the name of the port in log lines."""
        self._port = port
        self._begun = self._followed = 0
        #: Handshakes that had begun at the last call of `log_failures`, and its time.
        self._begun_before, self._checked_at = 0, float("-inf")
        self._logged = 0

    def begin(self) -> None:
        """Count a TLS handshake that begins; called by a thread of gRPC."""
        self._begun += 1

    def count_opened_stream(self) -> None:
        """Count a stream that a peer has opened after its handshake succeeded."""
        self._followed += 1

    def log_failures(self, now: float) -> None:
        """Log how many connections failed the handshake or sent nothing since the last log line.

        The log has at most one such line in `INTERVAL_S` seconds.

        Args:
            now: the present time, in seconds on a monotonic clock.
        """
        if now < self._checked_at + INTERVAL_S:
            return
        refused = self._begun_before - self._followed
        self._begun_before, self._checked_at = self._begun, now
        if refused > self._logged:
            log.warning(
                "%s: %d connections were refused by TLS or sent nothing; the log of a node that "
                "is refused says why",
                self._port,
                refused - self._logged,
            )
            self._logged = refused
