"""Contracts: the profit of a job that ends before its deadline (Kumar 2, 4.2)."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

#: Final states of jobs that bring no profit.
_WITHOUT_PROFIT = frozenset({"FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "REJECTED"})

#: How a profit function is written, for messages.
PROFIT_FORM = "PROFIT[:soft=FRACTION][:penalty=AMOUNT], as in 1000 or 1000:soft=0.25:penalty=50"


@dataclass(frozen=True, slots=True)
class Contract:
    """The profit of a job: full until the soft deadline, then falling linearly to 0."""

    #: Seconds from arrival.
    deadline_s: float
    profit: float = 0.0
    #: The fraction of ``deadline_s`` with full profit.
    soft: float = 0.5
    #: Loss if the job ends after its deadline.
    penalty: float = 0.0

    def __post_init__(self) -> None:
        for name in ("deadline_s", "profit", "penalty"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"contract.{name}: {value!r} is not a number >= 0")
        if not 0 <= self.soft <= 1:
            raise ValueError(f"contract.soft: {self.soft!r} is not between 0 and 1")

    def deadline(self, arrival: float) -> float:
        """Return the time of the deadline, on the same clock as ``arrival``."""
        return arrival + self.deadline_s

    def value(self, arrival: float, end: float) -> float:
        """Return the profit of a job that ends at ``end``; both times are on the same clock.

        Args:
            arrival: the time of the job's submission.
            end: the time of the job's end.
        """
        taken = end - arrival
        full = self.soft * self.deadline_s
        if taken <= full:
            return self.profit
        if taken <= self.deadline_s:
            return self.profit * (self.deadline_s - taken) / (self.deadline_s - full)
        return -self.penalty

    def to_record(self) -> dict[str, Any]:
        """Return the contract as plain data."""
        return asdict(self)


def parse_profit(text: str, deadline_s: float) -> Contract:
    """Read a profit function: ``1000``, ``1000:soft=0.25``, ``1000:soft=0.25:penalty=50``.

    The job is worth ``1000`` if it ends within the fraction ``soft`` (0.5 unless given) of its
    deadline. The profit then falls linearly to 0 at the deadline. A job that ends later loses
    ``penalty`` (0 unless given). Amounts have no unit: they are the site's.

    Args:
        text: the profit function; empty: the job is worth nothing, it only has a deadline.
        deadline_s: seconds from the arrival of the job.

    Raises:
        ValueError: the text is not in this form, or a number is out of range.
    """
    amount, *terms = text.split(":") if text.strip() else ["0"]
    values = {"profit": _amount(text, amount)}
    for term in terms:
        name, equals, number = term.partition("=")
        name = name.strip()
        if not equals or name not in {"soft", "penalty"} or name in values:
            raise ValueError(f"{text!r:.60} is not a profit function; write {PROFIT_FORM}")
        values[name] = _amount(text, number)
    if values.get("soft", 0.0) > 1:
        raise ValueError(f"{text!r:.60}: soft is a part of the deadline, from 0 to 1")
    return Contract(deadline_s, **values)


def contract_from_record(record: Mapping[str, Any]) -> Contract:
    """Return the contract that a record describes; keys of a newer version are ignored."""
    known = ("deadline_s", "profit", "soft", "penalty")
    return Contract(**{name: record[name] for name in known if name in record})


def present_profit(
    contract: Contract, *, state: str, submit: float, end: float | None, promised: bool, now: float
) -> float | None:
    """Return the profit of an ended job, or of one that ends when expected; None if unknown.

    An open job whose expected end has passed is assumed to end now. A job that did not complete
    costs its penalty if it had been accepted.

    Args:
        contract: the contract of the job.
        state: the state of the job, such as ``RUNNING``.
        submit: the time of its submission, in seconds since the epoch.
        end: the time of its end or expected end; None if that is unknown.
        promised: whether the strategy had accepted it.
        now: seconds since the epoch.
    """
    if state == "COMPLETED" and end is not None:
        return contract.value(submit, end)
    if state in _WITHOUT_PROFIT:
        return -contract.penalty if promised else 0.0
    return None if end is None else contract.value(submit, max(end, now))


def _amount(text: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"{text!r:.60} is not a profit function; write {PROFIT_FORM}")
    return value
