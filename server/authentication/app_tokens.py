"""The secrets of applications, derived from a key in the job database.

A token authenticates one run of one job. Tokens are derived and not stored, so a crash cannot lose
one, and no token has to be deleted when its run ends. A token does not expire: each service that
accepts a token must check that its run has not ended.
"""

from __future__ import annotations

import hashlib
import hmac
import string

_DIGITS = string.digits + string.ascii_lowercase


class AppTokens:
    """Derives the secrets of applications from the key in the job database, and verifies them."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def token(self, job: int, run: int) -> bytes:
        """Return the secret of one run of a job, as ASCII text without white space."""
        return self._sign(self._key, f"application {job} {run}").encode("ascii")

    def verify(self, token: bytes, job: int, run: int) -> bool:
        """Return whether a token is the secret of this run; the comparison takes constant time."""
        return hmac.compare_digest(token, self.token(job, run))

    def join_secret(self, job: int, run: int, resize: int) -> str:
        """Return the secret with which the new ranks of a growth authenticate to the running job.

        Args:
            job: the number of the job.
            run: the run of the job.
            resize: the number of the resize in which the ranks join.
        """
        return self._sign(self.token(job, run), str(resize))

    def checkpoint_key(self, job: int) -> bytes:
        """Return the key that signs a job's checkpoints, the same in each of its runs."""
        return self._sign(self._key, f"checkpoints {job}").encode("ascii")

    def checkpoint_name(self, job: int) -> str:
        """Return the secret part of the name of a job's checkpoint folder: seven characters.

        They are derived from the server's key, so nobody else can guess them (36 bits). They are
        letters and digits, because nodes accept nothing else in an order to remove a folder.
        """
        number, name = int(self._sign(self._key, f"checkpoint folder {job}"), 16), ""
        for _ in range(7):
            number, digit = divmod(number, len(_DIGITS))
            name += _DIGITS[digit]
        return name

    @staticmethod
    def _sign(key: bytes, text: str) -> str:
        return hmac.new(key, text.encode("ascii"), hashlib.sha256).hexdigest()
