"""How long the core waits for others, in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """All waiting times of the core. The defaults are here alone; configuration may change them."""

    #: For the answer to an offer.
    offer_timeout_s: float = 5.0
    #: For newcomers to come up, or the next coordinator to connect.
    prepare_timeout_s: float = 60.0
    #: From GO to the next safe point; then the resize is withdrawn.
    safe_point_timeout_s: float = 120.0
    #: From the safe point to the application's decision, and from a withdrawal to its answer; then
    #: the job fails. Also for leavers to go; then they are killed.
    resize_deadline_s: float = 60.0
    #: For the nodes of a job to report that its processes run; then the job fails.
    start_deadline_s: float = 120.0
    #: Between TERM and KILL.
    kill_grace_s: float = 5.0
    #: From KILL until the processes are gone; then their nodes are drained.
    end_deadline_s: float = 60.0
    #: For the rest of a job's processors once the first came free, so that one plan uses all.
    settle_s: float = 0.1
    #: Before a job that refused, or let an offer expire, is asked again.
    quiet_s: float = 30.0
