"""Named resources that jobs use while they run, such as licenses of a program.

The server's configuration states how many there are of each. A job states how many it needs, in
total or for each of its processors.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: How a need is written, for messages.
FORMS = "write NAME=AMOUNT or NAME=AMOUNT/proc, as in matlab=1"
#: The largest amount that a cluster may have or a job may need.
LARGEST = 1_000_000

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}", re.ASCII)
_NEED = re.compile(rf"({_NAME.pattern})=(\d{{1,7}})(/proc)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Need:
    """How much of one resource a job needs."""

    name: str
    amount: int
    #: Whether the amount is for each processor. Otherwise it is for the whole job.
    per_processor: bool = False

    def on(self, processors: int) -> int:
        """Return how much a job with ``processors`` processors needs; 0 without processors."""
        if not processors:
            return 0
        return self.amount * processors if self.per_processor else self.amount

    def __str__(self) -> str:
        return f"{self.name}={self.amount}" + ("/proc" if self.per_processor else "")


def parse_needs(texts: Iterable[str]) -> tuple[Need, ...]:
    """Parse the named resources that a job needs, each written as a name with an amount.

    Raises:
        ValueError: a text has another form, or a resource is named twice.
    """
    needs: dict[str, Need] = {}
    for text in texts:
        match = _NEED.fullmatch(text)
        if match is None or not 1 <= int(match[2]) <= LARGEST:
            raise ValueError(f"{text[:80]!r} is not a resource with an amount; {FORMS}")
        need = Need(match[1], int(match[2]), match[3] is not None)
        if need.name in needs:
            raise ValueError(f"{need.name} is named twice; add the amounts")
        needs[need.name] = need
    return tuple(needs.values())


def is_name(text: str) -> bool:
    """Return whether a text may be the name of a resource."""
    return _NAME.fullmatch(text) is not None


def impossible(needs: Iterable[Need], least: int, amounts: Mapping[str, int]) -> str:
    """Return why a cluster can never give a job what it needs; empty if it can.

    Args:
        needs: the needs of the job.
        least: its smallest number of processors.
        amounts: the amount of each resource in the cluster, by name.
    """
    for need in needs:
        there = amounts.get(need.name)
        if there is None:
            known = f"it has {', '.join(sorted(amounts))}" if amounts else "it has none"
            return (
                f"the cluster has no resource {need.name!r} ({known}); name one of these, or add "
                "it to `resources` in the server's configuration"
            )
        if need.on(least) > there:
            each = f" on {least} processors" if need.per_processor else ""
            return (
                f"{need}: {need.on(least)}{each} can never be satisfied, the cluster has {there}; "
                f"ask for at most {there}"
            )
    return ""
