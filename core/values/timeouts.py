"""Time limits of the core, in seconds."""

from dataclasses import dataclass

from pliant.core.values import lost_contact_policy


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the core waits for applications, nodes and processes, in seconds.

    The defaults are only here. The configuration may change them.
    """

    #: For the answer to an offer.
    offer_timeout_s: float = 5.0
    #: For joining ranks to come up, or the next coordinator to connect.
    prepare_timeout_s: float = 60.0
    #: From GO to the next safe point; then the resize is withdrawn.
    safe_point_timeout_s: float = 120.0
    #: From the safe point to the application's decision, and from a withdrawal to its answer; then
    #: the job fails. Also for leaving ranks to exit; then they are killed.
    resize_deadline_s: float = 60.0
    #: For leaving ranks to exit before the job continues without waiting for them. Also for the
    #: ranks of an ending job to exit after its first ones; then the processors of those that have
    #: exited become free.
    release_timeout_s: float = 5.0
    #: For the application to roll back a growth of which a joining rank has died; then the job
    #: fails. Longer than appkit's limit for connecting the joining ranks (10 s).
    rollback_timeout_s: float = 12.0
    #: For an application that is suspended to save itself, from its safe point on; then the job
    #: fails.
    save_deadline_s: float = 600.0
    #: For the nodes of a job to report that its processes run; then the job fails.
    start_deadline_s: float = 120.0
    #: Between TERM and KILL.
    kill_grace_s: float = 5.0
    #: Without a heartbeat until a node is lost.
    lease_s: float = 60.0
    #: From KILL until the processes are gone; then their nodes are drained.
    end_deadline_s: float = 60.0
    #: For the other leaving ranks of a shrink after one has exited, so that one plan uses the
    #: processors of all.
    settle_s: float = 0.1
    #: Until a job that refused an offer, or let one expire, gets another offer.
    quiet_s: float = 30.0
    #: How often ``quiet_s`` doubles at most, once for each consecutive growth offer that fails.
    quiet_doublings: int = 5
    #: How often a job that loses processes or a node runs again in a row without a new checkpoint.
    max_restarts: int = 10
    #: For a request of an application without a deadline; then it expires. 0 for no limit.
    request_timeout_s: float = 300.0

    def isolation_grace_s(self, stop_after_s: float | None) -> float:
        """Return how long a node without contact lets a job's processes live, until all are killed.

        The result is in seconds; 0 means that they are never killed.

        Args:
            stop_after_s: the T of the job's option ``stop-after=T``: seconds that its processes may
                continue after the node's lease has expired; None for no limit.
        """
        return lost_contact_policy.grace_s(stop_after_s, self.lease_s, self.kill_grace_s)
