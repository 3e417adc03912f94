"""Judge measured values by their confidence intervals: against values of papers, and theory."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pliant.simulator.confidence import Interval, interval
from pliant.simulator.experiments.definition.definitions import Metric, Tolerance

PRINTED = "as printed"
THEORY = "as theory"
DIFFERS = "differs"
REPORTED = "reported"
UNDECIDED = "too few runs"
DOUBTFUL = "printed value doubtful"
#: The largest half width of an interval that decides, relative to the expected value. A wider
#: interval would contain almost any value.
WIDEST = 0.1


#: The smallest number of runs, or of pairs of runs, with an interval.
MIN_RUNS = 2

#: Any difference in the claimed direction is enough.
ANY = Tolerance(0.0)


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The result of checking a claim of the paper that compares two sides, such as two strategies.

    The runs of both sides that have the same seed are compared in pairs.
    """

    #: Whether the claim holds for the mean of the differences.
    holds: bool
    #: The difference, positive on the claimed side.
    by: Interval
    #: The number of pairs in which the claim holds, and the number of pairs.
    pairs: int
    of: int
    #: Whether the interval of the differences excludes 0. If not, the result may be due to chance.
    told_apart: bool
    #: Whether the claim holds, or does not hold, in the whole interval of the differences.
    is_decided: bool

    @property
    def is_judged(self) -> bool:
        """Return whether there are enough pairs of runs (``MIN_RUNS``) to judge the claim."""
        return self.of >= MIN_RUNS


def judge(
    metric: Metric, ours: Interval, printed: float | None, theory: Mapping[str, float], runs: int
) -> str:
    """Return the verdict on a metric: our runs compared with the paper's value or with theory.

    The verdict is "as printed" if our values agree with the value in the paper within its
    tolerance. If not, or if there is no tolerance, our values are compared with the value of
    theory, if there is one. They agree with theory if their mean is within the tolerance, or if
    theory's value is within their interval and the interval is narrow (at most 10 % of this value
    to either side). A single run has no interval, so its verdict is "too few runs" if there is
    anything to compare with.

    Args:
        metric: the metric, with its tolerance.
        ours: the mean of our runs, with its confidence interval.
        printed: the value that is printed in the paper; None if there is none.
        theory: the values that theory predicts, by metric.
        runs: the number of our runs.
    """
    expected, within = theory.get(metric.name), metric.within
    if runs < MIN_RUNS and (expected is not None or None not in (within, printed)):
        return UNDECIDED
    by_print = REPORTED
    if within is not None and printed is not None:
        by_print = judge_printed(within, ours, printed)
    if by_print == PRINTED or expected is None:
        return by_print
    if _near(within, ours, expected):
        return THEORY
    if expected not in ours:
        return UNDECIDED if by_print == UNDECIDED else DIFFERS
    return THEORY if _is_narrow(ours, expected) else UNDECIDED


def judge_printed(within: Tolerance, ours: Interval, printed: float) -> str:
    """Return the verdict on a value in the paper: "as printed", "differs" or "too few runs".

    The verdict is "as printed" if the whole interval is within the tolerance, and "differs" if no
    part of it is. If a part is, the verdict is "as printed" only if three conditions hold: the mean
    is within the tolerance, the paper's value is within the interval, and the interval is narrow
    (at most 10 % of the paper's value to either side). Otherwise other seeds could give another
    verdict, so it is "too few runs".
    """
    if within.allows(ours.low, printed) and within.allows(ours.high, printed):
        return PRINTED
    margin = within.margin(printed)
    if ours.low > printed + margin or ours.high < printed - margin:
        return DIFFERS
    agrees = within.allows(ours.mean, printed) and printed in ours and _is_narrow(ours, printed)
    return PRINTED if agrees else UNDECIDED


def _is_narrow(ours: Interval, expected: float) -> bool:
    return ours.high - ours.low <= 2 * WIDEST * abs(expected)


def _near(within: Tolerance | None, ours: Interval, expected: float | None) -> bool:
    return within is not None and expected is not None and within.allows(ours.mean, expected)


def compare_pairs(
    mine: Sequence[float],
    other: Sequence[float],
    *,
    above: bool,
    by: Tolerance = ANY,
    at_most: Tolerance | None = None,
) -> ClaimResult:
    """Compare the two sides of a claim run by run, and return the result.

    If one side has more runs, only as many of them are compared as the other side has.

    Args:
        mine: the values of the side that the claim is about, in the order of the seeds.
        other: the values of the other side.
        above: whether the claim is that ``mine`` is above.
        by: the smallest difference with which the claim holds, relative to the other side.
        at_most: the largest difference with which the claim holds; None if there is none.
    """
    sign = 1 if above else -1
    pairs = list(zip(mine, other, strict=False))
    ahead = [sign * (left - right) for left, right in pairs]
    least = interval([by.margin(right) for _, right in pairs]).mean
    found = interval(ahead)
    most = math.inf
    if at_most is not None:
        most = interval([at_most.margin(right) for _, right in pairs]).mean
    low, holds, high = (
        0 < difference <= most and difference >= least
        for difference in (found.low, found.mean, found.high)
    )
    return ClaimResult(
        holds=holds,
        by=found,
        pairs=sum(each > 0 for each in ahead),
        of=len(ahead),
        told_apart=0 not in found,
        is_decided=len(ahead) >= MIN_RUNS and low == holds == high,
    )


def summary(verdicts: Mapping[str, str], claims: Mapping[str, bool | None]) -> str:
    """Combine the verdicts on the values and the claims of one line of the table.

    Args:
        verdicts: the verdict on each value.
        claims: whether each claim holds; None if more runs are needed to say so.

    Returns:
        "differs" with the names of the values and claims that do not agree. If there are none: "too
        few runs" if a value or a claim is undecided, otherwise the weakest kind of agreement.
    """
    wrong = [name for name, verdict in verdicts.items() if verdict == DIFFERS]
    wrong += [f"not {claim}" for claim, holds in claims.items() if holds is False]
    if wrong:
        return f"{DIFFERS}: {', '.join(wrong)}"
    found = set(verdicts.values()) - {REPORTED, DOUBTFUL}
    if UNDECIDED in found or None in claims.values():
        return UNDECIDED
    if not found:
        return REPORTED
    return THEORY if THEORY in found else PRINTED
