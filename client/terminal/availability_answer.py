"""The answer to a query (``jobsub --query``) in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pliant.client.terminal.durations import format_duration, format_time
from pliant.client.terminal.tables import clean


def answer_text(answer: Mapping[str, Any]) -> str:
    """Return one sentence that says whether and when the server would start a job.

    Args:
        answer: ``accepted`` (None: not known), ``start`` (seconds since the epoch; None: not
            known), ``processors``, ``price`` (None: the strategy knows no prices), ``reason``,
            ``strategy``, and ``now``, the server's time.
    """
    reason = clean(str(answer.get("reason") or "no reason was given"))
    strategy = clean(str(answer["strategy"]))
    if answer["accepted"] is None:
        return f"not known: {reason} (strategy {strategy})"
    if not answer["accepted"]:
        return f"rejected: {reason} (strategy {strategy})"
    size, price = answer["processors"], answer.get("price")
    parts = [_when(answer.get("start"), answer["now"])]
    if size:
        parts.append(f"on {size} processor{'' if size == 1 else 's'}")
    if price is not None:
        parts.append(f"at a price of {price:g} (what other jobs lose)")
    return f"accepted: {', '.join(parts)}: {reason} (strategy {strategy})"


def _when(start: float | None, now: float) -> str:
    if start is None:
        return "at a time that is not known"
    if start <= now + 1.0:
        return "starts now"
    return f"starts in {format_duration(start - now)}, at {format_time(start, now)}"
