"""What a running application requests, and the answer (rules: handlers/size_requests.py)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pliant.core.values.sizes import Sizes


class RequestOutcome(StrEnum):
    """What became of an application's request for other sizes."""

    #: It has what it wanted.
    GRANTED = "granted"
    #: It has more than before, one of the sizes named, but less than it wanted.
    PARTLY = "granted in part"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    #: Its deadline passed.
    EXPIRED = "expired"


class RequestAnswer(NamedTuple):
    """The answer to a request; kept to be given again."""

    number: int
    outcome: RequestOutcome
    #: What the job had then.
    size: int
    reason: str = ""


@dataclass(slots=True)
class SizeRequest:
    """An open request of a running application."""

    number: int
    #: What would do and what the job may have, up to the size wanted.
    sizes: Sizes
    wanted: int
    #: When it came, seconds since the epoch.
    since: float
    #: Whether it wanted less than it had when it asked.
    is_shrink: bool = False
    reason: str = ""
    #: Seconds since the epoch; None: none.
    deadline: float | None = None
    #: The least it had since no resize of an earlier cause was open; None: one still is.
    base: int | None = None
    #: Whether its deadline passed while a resize for it was under way.
    overdue: bool = False
