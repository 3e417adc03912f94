"""How long the core waits for others, in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """All waiting times of the core; configuration, so that tests can be quick."""

    #: For the answer to an offer.
    offer_timeout_s: float = 10.0
    #: For newcomers to come up, or the next coordinator to connect.
    prepare_timeout_s: float = 60.0
    #: From GO to the next safe point; then the resize is withdrawn.
    safe_point_timeout_s: float = 60.0
    #: From the safe point to the application's decision; then the job fails.
    resize_deadline_s: float = 30.0
    #: Between TERM and KILL.
    kill_grace_s: float = 5.0
    #: For the rest of a job's processors once the first came free, so that one plan uses all.
    settle_s: float = 0.1
    #: Before a job that refused, or let an offer expire, is asked again.
    quiet_s: float = 30.0
