"""Limits for each user, of jobs, processors and submissions: the key ``user_limits``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

#: Submissions that a user may send at once, in seconds of the rate.
BURST_S = 10.0
_MOST = 1 << 53


@dataclass(frozen=True, slots=True)
class UserLimit:
    """The limits of one user. None stands for no limit."""

    #: Jobs that have not started: PENDING and HELD ones.
    pending_jobs: int | None = None
    #: Bytes of the arguments and environments of these jobs.
    pending_bytes: int | None = None
    #: Processors of all jobs together.
    running_processors: int | None = None
    #: Submissions per second on average. ``BURST_S`` times as many may come at once.
    submissions_per_s: float | None = None

    @property
    def burst(self) -> float:
        """Return how many jobs the user may submit at once."""
        return max(1.0, (self.submissions_per_s or 0.0) * BURST_S)


@dataclass(frozen=True, slots=True)
class UserLimits:
    """The limits of each user: default limits, and those of users who have limits of their own."""

    default: UserLimit = UserLimit()
    #: Users with limits of their own.
    users: Mapping[str, UserLimit] = field(default_factory=dict)
    #: Whether any user has a limit of processors. Made once, because each view asks.
    limits_processors: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        every = (self.default, *self.users.values())
        limited = any(limit.running_processors is not None for limit in every)
        object.__setattr__(self, "limits_processors", limited)

    def of(self, user: str) -> UserLimit:
        """Return the limits of a user; the default limits if the user has none of their own."""
        return self.users.get(user, self.default)


NO_LIMITS = UserLimits()
_INTEGERS = ("pending_jobs", "pending_bytes", "running_processors")
_KEYS = (*_INTEGERS, "submissions_per_s")


def parse_user_limits(settings: Mapping[str, object]) -> UserLimits:
    """Parse the value of the configuration key ``user_limits``.

    Raises:
        ValueError: a value is wrong. The message begins with its key.
    """
    users = settings.get("users", {})
    default = _limit({k: v for k, v in settings.items() if k != "users"}, UserLimit(), "")
    if not isinstance(users, Mapping):
        raise ValueError(f"users: expected limits by user, got {users}")
    for name in users:
        if not isinstance(name, str) or not name:
            raise ValueError(f"users: {name!r:.80} is no name; write it in quotes")
    return UserLimits(
        default, {name: _limit(value, default, f"users.{name}") for name, value in users.items()}
    )


def _limit(values: object, default: UserLimit, where: str) -> UserLimit:
    """Return the limits of a user; a limit that is not given has its default.

    Args:
        values: the limits as the configuration states them.
        default: the default limits.
        where: the configuration key of ``values``, for errors.

    Raises:
        ValueError: a limit is unknown or wrong. The message begins with its key.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}: expected limits such as {{pending_jobs: 100}}, got {values}")
    found: dict[str, int | float | None] = {}
    for key, value in values.items():
        path = f"{where}.{key}" if where else str(key)
        if key not in _KEYS:
            raise ValueError(f"{path}: unknown key; known: {', '.join(_KEYS)}")
        found[key] = _value(key, value, path)
    return replace(default, **found)  # type: ignore[arg-type]


def _value(key: str, value: object, path: str) -> int | float | None:
    if value is None or value == "none":
        return None
    if key in _INTEGERS:
        if type(value) is int and 0 <= value <= _MOST:
            return value
        raise ValueError(f"{path}: expected a whole number >= 0 or none, got {value}")
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MOST:
        return float(value)
    raise ValueError(f"{path}: expected a number above 0 or none, got {value}")
