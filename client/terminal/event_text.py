"""Events as text: the history of a job, refused requests, and a timeline of many jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from pliant.client.terminal.durations import format_bytes, format_duration, format_time
from pliant.client.terminal.tables import clean, table

Event = Mapping[str, Any]

#: Kinds that belong to a timeline: every offer, answer and adaptation, and the jobs' own ends.
_PREFIXES = ("offer.", "request.", "resize.", "job.", "node.")


def history_text(events: Sequence[Event]) -> str:
    """Return events as a table with the time of each and the time since the first."""
    if not events:
        return "nothing has happened yet"
    first = float(events[0]["time"])
    rows = []
    for (_, kind, text), alike in groupby(events, _what_happened):
        event, *more = alike
        when, after = format_time(event["time"], first), float(event["time"]) - first
        times = f" ({len(more) + 1} times)" if more else ""
        rows.append((when, "+" + format_duration(after), kind, f"{text}{times}"))
    return table(("time", "after", "event", "what"), rows, right=frozenset({"after"}))


def _what_happened(event: Event) -> tuple[object, str, str]:
    """Return the job, the kind and the text of an event.

    Successive events for which all three are equal are printed as one line.
    """
    return event.get("job"), event["kind"], event.get("text") or sentence(event)


def event_line(event: Event) -> str:
    """Return an event as one line: its time, its job, its kind and a phrase."""
    job = "-" if event.get("job") is None else str(event["job"])
    if event.get("array_job"):
        job = f"{event['array_job']}_{event['array_task']}"
    what = clean(event.get("text") or sentence(event))
    return f"{format_time(event['time'], event['time'])}  {job:>5}  {event['kind']:<20}  {what}"


def refusals_text(events: Sequence[Event]) -> str:
    """Return a table of refused requests with the columns time, user, request and reason."""
    if not events:
        return "nothing was refused"
    rows = []
    for event in events:
        data = event["data"]
        known = ("name", "program", "sizes", "id", "step", "ids", "node", "size")
        asked = ", ".join(f"{name} {data[name]}" for name in known if name in data)
        more = f" ({data['not_recorded']} more before)" if data.get("not_recorded") else ""
        when = format_time(event["time"], events[-1]["time"])
        rows.append((when, data["user"], asked or "-", f"{event['text']}{more}"))
    return table(("time", "user", "asked for", "refused"), rows, right=frozenset())


def timeline(
    events: Sequence[Event], names: Mapping[int, str], *, start: float | None = None
) -> str:
    """Return a table of the events of jobs, nodes, resize offers and resizes, with their times.

    Args:
        events: the events in order of time; other kinds of events are left out.
        names: the names of the jobs by number.
        start: the time that counts as second 0; None for that of the first event in the table.
    """
    chosen = [event for event in events if str(event["kind"]).startswith(_PREFIXES)]
    if not chosen:
        return "no job was submitted"
    begin = float(chosen[0]["time"]) if start is None else start
    lines = []
    for event in chosen:
        job = event.get("job")
        who = f"{names.get(job, 'job')} ({job})" if job is not None else ""
        what = sentence(event) or str(event.get("text") or "")
        lines.append((f"{float(event['time']) - begin:.3f}", who, event["kind"], what))
    return table(("seconds", "job", "event", "what"), lines, right=frozenset({"seconds"}))


def sentence(event: Event) -> str:
    """Return a phrase that describes an event.

    The phrase is made from the data of the event. For a kind that is unknown here, the phrase is
    the event's own text.
    """
    data: Mapping[str, Any] = event.get("data") or {}
    kind = event["kind"]
    if kind == "job.started":
        return f"on {_processors(data)}"
    if kind == "job.resized":
        return _resized(data)
    if kind == "job.ended":
        return _ended(data)
    if kind == "offer.sent":
        return f"{data.get('direction', '')} {data.get('from', '?')} -> {data.get('size', '?')}"
    if kind == "offer.answered":
        size = f" of {data['size']}" if data.get("size") else ""
        return f"{data.get('answer', '')}{size}"
    if kind == "resize.rolled_back":
        return clean(f"at {data.get('stage', '?')}: {data.get('reason', '?')}")
    return clean(event.get("text") or "")


def _resized(data: Mapping[str, Any]) -> str:
    parts = [f"{data.get('direction', '')} {data.get('from', '?')} -> {data.get('to', '?')}"]
    seconds = data.get("seconds") or {}
    if seconds:
        steps = ", ".join(f"{clean(step)} {_milli(value)}" for step, value in seconds.items())
        parts.append(f"({steps})")
    if data.get("bytes_moved"):
        parts.append(f"{format_bytes(data['bytes_moved'])} moved")
    return " ".join(parts)


def _ended(data: Mapping[str, Any]) -> str:
    if data.get("signal"):
        return f"{data.get('state', '')} by signal {data['signal']}"
    code = data.get("exit_code")
    return str(data.get("state", "")) + (f" with exit code {code}" if code else "")


def _milli(value: Any) -> str:
    return f"{float(value) * 1000:.0f} ms" if isinstance(value, int | float) else clean(value)


def _processors(data: Mapping[str, Any]) -> str:
    listed: Iterable[int] = data.get("processors") or []
    count = len(list(listed))
    return f"{count} processor{'' if count == 1 else 's'}"
