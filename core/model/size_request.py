"""Requests of running applications for another size, and the answers.

The rules are in ``handlers/size_requests.py``.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pliant.core.values.sizes import Sizes


class RequestOutcome(StrEnum):
    """The outcome of a request for another size."""

    #: The job has the size that it wanted.
    GRANTED = "granted"
    #: The job grew to one of the sizes named, but has less than it wanted.
    PARTLY = "granted in part"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    #: The deadline passed.
    EXPIRED = "expired"


class RequestAnswer(NamedTuple):
    """The answer to a request. The server keeps it, because it may have to send it again."""

    number: int
    outcome: RequestOutcome
    #: The size of the job at that time.
    size: int
    reason: str = ""


@dataclass(slots=True)
class SizeRequest:
    """The open request of a running application for another size."""

    number: int
    #: Acceptable sizes that the job may have, up to the size wanted.
    sizes: Sizes
    wanted: int
    #: When the request arrived, in seconds since the epoch.
    since: float
    #: Whether the job wanted fewer processors than it had at that time.
    is_shrink: bool = False
    reason: str = ""
    #: Seconds since the epoch. None if the request does not expire.
    deadline: float | None = None
    #: The smallest size since no resize with an earlier cause was open. None if one still is.
    base: int | None = None
    #: Whether the deadline passed while a resize for the request was open.
    overdue: bool = False
