"""How much an application may say: a bucket of tokens for each run of a job.

A run and not a session has it, so that one who is sent away does not begin anew by connecting
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: Messages a second in the long run, and at a time: far above what appkit ever says.
MESSAGES_PER_S = 500.0
MESSAGES_AT_ONCE = 2000.0


@dataclass(slots=True)
class TokenBucket:
    """Tokens that come back with time, up to a limit."""

    tokens: float
    at: float

    def take(self, rate: float, burst: float, now: float) -> bool:
        """Take one token; False: there is none."""
        self.tokens = min(burst, self.tokens + rate * max(0.0, now - self.at))
        self.at = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


class RateLimiter:
    """The buckets of all runs. Used by the gRPC loop alone, but for ``forget``."""

    def __init__(self, rate: float = MESSAGES_PER_S, burst: float = MESSAGES_AT_ONCE) -> None:
        """Allow ``rate`` messages a second, and ``burst`` at a time."""
        self._rate, self._most = rate, burst
        self._buckets: dict[tuple[int, int], TokenBucket] = {}

    def configure(self, rate: float, burst: float) -> None:
        """Allow another number of messages from now on."""
        self._rate, self._most = rate, burst

    def exceeded(self, job: int, run: int, now: float) -> str:
        """Why one message more is too much; empty: it is not.

        Args:
            job: whose.
            run: of that job.
            now: seconds on a monotonic clock.
        """
        bucket = self._buckets.setdefault((job, run), TokenBucket(self._most, now))
        if bucket.take(self._rate, self._most, now):
            return ""
        return (
            f"job {job} says too much: more than {self._rate:g} messages a second, "
            f"{self._most:g} at once"
        )

    def forget(self, jobs: Iterable[int]) -> None:
        """These jobs have ended."""
        ended = set(jobs)
        for key in [key for key in list(self._buckets) if key[0] in ended]:
            self._buckets.pop(key, None)
