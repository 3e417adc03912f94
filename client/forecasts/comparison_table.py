"""Make a table of what would happen to each job under several strategies, from simulations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pliant.client.terminal.durations import format_duration, format_time
from pliant.client.terminal.tables import shorten, table

#: Sizes of a job that are shown: the first ones and the last.
_MAX_SIZES = 4
_MAX_NAME = 24


def comparison_text(
    snapshot: Mapping[str, Any], answer: Mapping[str, Any], most: int | None = None
) -> str:
    """Return a table of the simulated start, sizes and end of each job under each strategy.

    A second table has means and sums for each strategy, and notes follow.

    Args:
        snapshot: the answer of the server to ``snapshot``.
        answer: the results of the simulations (`simulate_queue`); the first one belongs to the
            strategy that the server uses.
        most: the largest number of jobs to show; None for all.
    """
    now, outcomes = snapshot["now"], answer["outcomes"]
    rows = [row for row in snapshot["jobs"] if str(row["id"]) in outcomes[0]["jobs"]]
    shown = rows if most is None else rows[:most]
    heads = ["id", "name", "state"]
    for place in range(len(outcomes)):
        heads += [f"start {place}", f"sizes {place}", f"end {place}"]
        heads += [f"change {place}"] if place else []
    lines = [_line(row, outcomes, now) for row in shown]
    parts = [f"{place}: {each['strategy']}" for place, each in enumerate(outcomes)]
    parts[0] += " (in force)"
    text = [f"strategies {', '.join(parts)}", ""]
    changes = frozenset(head for head in heads if head.startswith("change"))
    text += [table(heads, lines, right=changes)]
    if len(shown) < len(rows):
        text += [f"and {len(rows) - len(shown)} more jobs (--all shows them)"]
    return "\n".join([*text, "", _sums(outcomes, now), *_notes(snapshot, answer)])


def _line(row: Mapping[str, Any], outcomes: Sequence[Mapping[str, Any]], now: float) -> list[str]:
    state = "RUNNING" if row["ranks"] else "PENDING"
    cells = [str(row["id"] or "this"), shorten(row["name"], _MAX_NAME), state]
    first = outcomes[0]["jobs"][str(row["id"])]
    for place, each in enumerate(outcomes):
        job = each["jobs"][str(row["id"])]
        cells += [_time(job["start"], now), _sizes(job["sizes"]), _end(job, now)]
        cells += [_change(first["end"], job["end"])] if place else []
    return cells


def _time(seconds: float | None, now: float) -> str:
    return "-" if seconds is None else format_time(now + seconds, now)


def _end(job: Mapping[str, Any], now: float) -> str:
    """Return the time of a job's end as text, or its final state if it does not complete."""
    return _time(job["end"], now) if job["state"] == "COMPLETED" else str(job["state"])


def _sizes(sizes: Sequence[int]) -> str:
    """Return the sizes of a job as ``4>8>6``, at most four of them."""
    some = [*map(str, sizes)]
    if len(some) > _MAX_SIZES:
        some = [*some[: _MAX_SIZES - 1], "..", some[-1]]
    return ">".join(some) or "-"


def _change(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "-"
    change = after - before
    if abs(change) < 1:
        return "0s"
    return f"{'+' if change > 0 else ''}{format_duration(change)}"


def _sums(outcomes: Sequence[Mapping[str, Any]], now: float) -> str:
    rows = [
        [
            str(place),
            each["strategy"],
            format_duration(each["mean_wait_s"]),
            format_duration(each["mean_response_s"]),
            format_time(now + each["end_s"], now),
            f"{100 * each['utilization']:.1f} %",
            str(each["resizes"]),
        ]
        for place, each in enumerate(outcomes)
    ]
    heads = ["", "strategy", "mean wait", "mean response", "last end", "utilization", "resizes"]
    return table(heads, rows, right=frozenset(heads[2:]))


def _notes(snapshot: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """Return lines that say what the simulation assumes, does not know or leaves out."""
    left_out = snapshot["left_out"]
    about = {
        "their run time is assumed (--assume), because they state none": len(answer["assumed"]),
        "they wait for other jobs, and are left out": left_out["dependent"],
        "they are held, and are left out": left_out["held"],
        "they are suspended, and are left out": left_out["suspended"],
        "they are ending, and are left out": left_out["ending"],
        "they are wider than the usable nodes, and are left out": len(answer["too_wide"]),
        "they run on nodes that take no new work, and are left out": len(answer["on_other_nodes"]),
        "they need named resources, which are not simulated": snapshot["jobs_with_resources"],
    }
    notes = [f"{number} jobs: {what}" for what, number in about.items() if number]
    if snapshot["users_are_limited"]:
        notes.append("limits of users (user_limits) are not simulated")
    if not snapshot["all_values"]:
        notes.append(
            "speedups, deadlines, accounts and needs of others' jobs are known to operators only"
        )
    return ["", *notes] if notes else []
