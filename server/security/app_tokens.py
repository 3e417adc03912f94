"""The secrets of applications, derived from one key of the cluster.

A token speaks for one run of one job. Derived, not stored: nothing to lose in a crash, nothing to
forget at the end; whether the run is still alive is asked whenever a token is shown.
"""

from __future__ import annotations

import hashlib
import hmac


class AppTokens:
    """Makes and checks tokens."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def token(self, job: int, run: int) -> bytes:
        """The secret of an application, as text without white space."""
        return self._sign(self._key, f"application {job} {run}").encode("ascii")

    def verify(self, token: bytes, job: int, run: int) -> bool:
        """Whether the token is this run's, in constant time."""
        return hmac.compare_digest(token, self.token(job, run))

    def join_secret(self, job: int, run: int, resize: int) -> str:
        """What newcomers of a resize show at the rendezvous."""
        return self._sign(self.token(job, run), str(resize))

    def checkpoint_key(self, job: int) -> bytes:
        """Return the key that signs a job's checkpoints, the same in each of its runs."""
        return self._sign(self._key, f"checkpoints {job}").encode("ascii")

    @staticmethod
    def _sign(key: bytes, text: str) -> str:
        return hmac.new(key, text.encode("ascii"), hashlib.sha256).hexdigest()
