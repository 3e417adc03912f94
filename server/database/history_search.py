"""Search the history in small parts, so that other requests can read the database in between.

The table of events has an index by job only. A search by kind or user has to look at each event,
and there may be millions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from typing import Any, NamedTuple

from pliant.server.database.reader import MAX_HISTORY_LINES, Reader

#: Events that one query looks at: some ten milliseconds.
AT_ONCE = 50_000
#: Seconds until an answer is sent although the search has not looked at all events. A client waits
#: 30 s for an answer.
SEARCH_S = 10.0

Events = list[dict[str, Any]]


class EventFilter(NamedTuple):
    """The events that a request selects; a field that is None selects all."""

    job: int | None = None
    #: The user id whose jobs' events are wanted, besides those of nodes.
    owner: int | None = None
    until: float | None = None
    #: Empty for all.
    kinds: Collection[str] = ()


async def newest_events(reader: Reader, wanted: EventFilter) -> tuple[Events, bool]:
    """Return the newest matching events, oldest first, and whether these are all.

    Older events are left out after `MAX_HISTORY_LINES` events, or after a search of `SEARCH_S`
    seconds.
    """
    deadline = time.monotonic() + SEARCH_S
    last = await _last(reader, wanted)
    found: Events = []
    while last > 0 and len(found) < MAX_HISTORY_LINES and time.monotonic() < deadline:
        # The events of one job are found by the index.
        before = 0 if wanted.job is not None else max(0, last - AT_ONCE)
        found = [*await _search(reader, wanted, before, last, len(found), newest=True), *found]
        last = before
    return found, last <= 0 and len(found) < MAX_HISTORY_LINES


async def events_after(
    reader: Reader, wanted: EventFilter, after: int, most: int, since: float | None
) -> tuple[Events, int | None]:
    """Return the first ``most`` matching events after a number and from the time ``since`` on.

    There may be fewer, because the search ends after `SEARCH_S` seconds.

    Args:
        reader: runs the queries.
        wanted: the events that match.
        after: only events with a higher number are returned.
        most: the largest number of events to return.
        since: seconds since the epoch; None for events of any time.

    Returns:
        The events, and the number to pass as ``after`` to continue the search; None if all events
        have been searched.
    """
    deadline = time.monotonic() + SEARCH_S
    last = await _last(reader, wanted)
    if since is not None:
        earlier = await reader.in_thread(lambda reader: reader.event_before(since))
        after = max(after, earlier)
    found: Events = []
    while after < last and len(found) < most and time.monotonic() < deadline:
        end = last if wanted.job is not None else min(last, after + AT_ONCE)
        skipped = MAX_HISTORY_LINES - (most - len(found))
        part = await _search(reader, wanted, after, end, skipped, newest=False)
        found += part
        after = part[-1]["seq"] if len(found) >= most else end
    return found, after if after < last else None


async def _last(reader: Reader, wanted: EventFilter) -> int:
    """Return the number of the last event that can match the search."""
    if wanted.until is None:
        return await reader.in_thread(lambda reader: reader.last_event())
    later = math.nextafter(wanted.until, math.inf)
    return await reader.in_thread(lambda reader: reader.event_before(later))


async def _search(
    reader: Reader, wanted: EventFilter, after: int, last: int, found: int, *, newest: bool
) -> Events:
    job, owner, _, kinds = wanted
    most = MAX_HISTORY_LINES - found
    return await reader.in_thread(
        lambda reader: reader.history(job, after, most, owner, kinds, last, newest)
    )
