"""Equal shares of the surplus on top of the minima (Kumar 3.2.2), for any size grammar."""

from typing import NamedTuple

from pliant.core.values.ids import JobId
from pliant.core.values.sizes import Sizes


class Member(NamedTuple):
    """A job that gets a share of the processors beyond the minima of all jobs."""

    id: JobId
    sizes: Sizes


def share(members: list[Member], left: int) -> dict[JobId, int]:
    """Share ``left`` processors equally between jobs, in addition to their minimum sizes.

    Args:
        members: the jobs; their order breaks ties.
        left: the number of processors beyond the minima.

    Returns:
        The target size of every member, which its size grammar allows.
    """
    target = {member.id: member.sizes.min for member in members}
    left = _share_evenly(members, target, left)
    for member in members:
        allowed = member.sizes.largest_at_most(target[member.id])
        left += target[member.id] - allowed
        target[member.id] = allowed
    _raise_to_next(members, target, left)
    return target


def _share_evenly(members: list[Member], target: dict[JobId, int], left: int) -> int:
    is_open = [member for member in members if target[member.id] < member.sizes.max]
    while left > 0 and is_open:
        each = left // len(is_open)
        if each == 0:
            for member in is_open[:left]:
                target[member.id] += 1
            return 0
        for member in is_open:
            given = min(each, member.sizes.max - target[member.id])
            target[member.id] += given
            left -= given
        is_open = [member for member in is_open if target[member.id] < member.sizes.max]
    return left


def _raise_to_next(members: list[Member], target: dict[JobId, int], left: int) -> None:
    """Raise targets to the next size of the job's grammar while ``left`` processors allow it.

    Equal shares may lie between two sizes of a job, so processors are left over. The members are
    served in their order; ``target`` is changed.
    """
    changed = True
    while changed:
        changed = False
        for member in members:
            step = member.sizes.smallest_above(target[member.id]) - target[member.id]
            if 0 < step <= left:
                target[member.id] += step
                left -= step
                changed = True
