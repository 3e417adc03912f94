"""Limits on the number of messages from applications: a token bucket for each run of a job.

The bucket belongs to the run and not to the session. So an application whose session was closed for
exceeding the limit cannot get a full bucket by connecting again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: Default limits: messages per second on average, and in one burst. Both are far above what
#: pliant.appkit sends.
MESSAGES_PER_S = 500.0
MESSAGES_AT_ONCE = 2000.0


@dataclass(slots=True)
class TokenBucket:
    """A token bucket: tokens are added at a constant rate, up to a limit."""

    tokens: float
    at: float

    def take(self, rate: float, burst: float, now: float) -> bool:
        """Take one token and return True, or return False if there is none.

        Args:
            rate: tokens added per second.
            burst: largest number of tokens in the bucket.
            now: the present time in seconds, on a clock that does not jump.
        """
        self.tokens = min(burst, self.tokens + rate * max(0.0, now - self.at))
        self.at = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


class RateLimiter:
    """Limits the messages of each run of a job, with one token bucket per run.

    Only the gRPC loop calls its methods, except ``forget``, which any thread may call.
    """

    def __init__(self, rate: float = MESSAGES_PER_S, burst: float = MESSAGES_AT_ONCE) -> None:
        """Allow ``rate`` messages per second on average, and ``burst`` at once."""
        self._rate, self._most = rate, burst
        self._buckets: dict[tuple[int, int], TokenBucket] = {}

    def configure(self, rate: float, burst: float) -> None:
        """Allow ``rate`` messages per second on average, and ``burst`` at once, from now on."""
        self._rate, self._most = rate, burst

    def exceeded(self, job: int, run: int, now: float) -> str:
        """Count a message; return why it exceeds the limit, or an empty text.

        Args:
            job: the job that sent it.
            run: the run of the job.
            now: seconds on a monotonic clock.
        """
        bucket = self._buckets.setdefault((job, run), TokenBucket(self._most, now))
        if bucket.take(self._rate, self._most, now):
            return ""
        return (
            f"job {job} exceeded its rate limit: more than {self._rate:g} messages a second, "
            f"{self._most:g} at once"
        )

    def forget(self, jobs: Iterable[int]) -> None:
        """Drop the buckets of jobs that have ended."""
        ended = set(jobs)
        for key in [key for key in list(self._buckets) if key[0] in ended]:
            self._buckets.pop(key, None)
