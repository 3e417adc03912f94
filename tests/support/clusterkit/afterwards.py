"""What must hold after each case, when a cluster has come to rest: all invariants, I1 to I10.

I1-I6, I8 and I9 are judged by the evidence alone (`checker`). These two need the cluster itself:
I7 a job that is submitted now runs and ends, soon; I10 daemons do not swell (`uses`).
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from clusterkit.checker import settled
from clusterkit.cluster import Cluster, zombies_below
from clusterkit.evidence import Evidence
from pliant.client.client_errors import RequestError
from pliant.client.demo.checks import segments_of
from testkit.waiting import wait_until

#: A canary is through in this time, on a busy machine too, seconds.
CANARY_S = 10.0
SHARED_MEMORY = Path("/dev/shm")


def idle(cluster: Cluster, keep: int | None = None) -> None:
    """Bring a cluster back to what it was before a test: whole, and empty but for one job.

    All processors are back, all that ran on them is collected, its shared memory is gone, and
    everything holds.
    """
    if cluster.missing:
        cluster.up()
    for job in cluster.client.jobs():
        if job.id != keep:
            with suppress(RequestError):  # it has ended
                cluster.client.cancel(job.id)
    left = 0 if keep is None else cluster.client.job(keep).held
    wait_until(lambda: sum(n.used for n in cluster.client.nodes()) == left, what="free nodes")
    at_rest(cluster)
    daemons = list(cluster.daemons().values())
    wait_until(lambda: not zombies_below(daemons), what="no zombies")
    wait_until(lambda: not segments(cluster, keep), what="no segments")


def segments(cluster: Cluster, keep: int | None = None) -> list[str]:
    """Return the shared memory that jobs have left behind."""
    kept = set[str]()
    if keep is not None:
        kept = segments_of(rank.process.pid for rank in cluster.ranks(keep))
    return [name for name in cluster.segments - kept if (SHARED_MEMORY / name).exists()]


def at_rest(cluster: Cluster, acknowledged: Collection[tuple[int, str]] = ()) -> Evidence:
    """See that everything holds in a cluster with an idle slot; the evidence for it.

    What the daemons use is compared with what they used when it first was up.

    Args:
        cluster: whom to look at.
        acknowledged: see `checker.violations`.

    Raises:
        AssertionError: something does not hold.
    """
    canary(cluster)
    found = settled(cluster.state, acknowledged)
    cluster.uses.rest(len(found.jobs))
    return found


def canary(cluster: Cluster) -> int:
    """Have a job run and end (I7); its number.

    Raises:
        AssertionError: it does not, or not in time.
    """
    number = cluster.client.submit("true", sizes=1, stdout="/dev/null")
    wait_until(
        lambda: cluster.client.job(number).final, timeout=CANARY_S, what="I7: the end of a canary"
    )
    assert cluster.client.job(number).state == "COMPLETED", f"I7: {cluster.report(number)}"
    return number
