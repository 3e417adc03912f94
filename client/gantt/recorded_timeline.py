"""The picture of recorded events, from a simulation or a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from pliant.charts.history_timeline import MAX_TIME_S, Recording, RecordingError
from pliant.charts.timeline import Timeline
from pliant.client.client_errors import ClientError, UsageError
from pliant.client.terminal.durations import parse_span


def recorded_timeline(
    path: str,
    ids: Sequence[int] = (),
    *,
    since: tuple[str, float] | None = None,
    until: tuple[str, float] | None = None,
    by_processor: bool = False,
    title: str | None = None,
) -> Timeline:
    """Return the data of a picture from a file with recorded events.

    Args:
        path: the file: one event as JSON on each line, or a list of events.
        ids: only these jobs, all if empty.
        since: the beginning of the picture, as the user typed it and in seconds since the epoch;
            None for the beginning of the recording. In a simulation, the text must be a time span
            since the beginning.
        until: the end of the picture in the same form; None for the end of the recording.
        by_processor: draw which processors the jobs held.
        title: the line above the picture, by default the name of the file.

    Raises:
        ClientError: the file cannot be read, or has no events of jobs.
        UsageError: a time is not a span, in a simulation.
    """
    recording = Recording()
    try:
        with open(path, encoding="utf-8") as file:
            for place, event in _events(file, path):
                try:
                    recording.apply(event)
                except RecordingError as error:
                    raise ClientError(f"--result {path}: {place}: {error}") from None
                except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                    raise ClientError(f"--result {path}: {place}: is not an event") from None
    except OSError as error:
        raise ClientError(f"--result {path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ClientError(f"--result {path}: is not text") from None
    bands = recording.bands()
    if not any(band.holds for band in bands):
        raise ClientError(f"--result {path}: no job started in it; name a file of --events-out")
    for number in sorted(set(ids) - {band.id for band in bands}):
        raise ClientError(f"--result {path}: there is no job {number}")
    made = recording.timeline(
        title or Path(path).name,
        since=_in_recording_clock("--since", since, recording),
        until=_in_recording_clock("--until", until, recording),
        by_processor=by_processor,
    )
    return replace(made, bands=[b for b in made.bands if not ids or b.id in ids])


def _in_recording_clock(
    option: str, time: tuple[str, float] | None, recording: Recording
) -> float | None:
    """Convert a time of an option to the clock of the recording; None if the option is not used.

    Args:
        option: the name of the option, for the error.
        time: the time as it was typed, and in seconds since the epoch.
        recording: its clock is simulated or counts seconds since the epoch.

    Raises:
        UsageError: the recording has simulated time, and the time is not a span.
    """
    if time is None or recording.is_clock:
        return time and time[1]
    try:
        return recording.first + min(parse_span(time[0]), MAX_TIME_S)
    except ValueError:
        raise UsageError(
            f"{option} {time[0]}: the recording has simulated time: write a span since its "
            "beginning such as 12h or 7d"
        ) from None


def _events(file: IO[str], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each event with its position in the file, which messages name.

    Raises:
        ClientError: a part of the file is not JSON.
    """
    start = file.read(1)
    file.seek(0)
    if start == "[":
        for number, event in enumerate(_parsed(file.read(), path, "the list"), start=1):
            yield f"event {number}", event
        return
    for number, line in enumerate(file, start=1):
        if line.strip():
            yield f"line {number}", _parsed(line, path, f"line {number}")


def _parsed(text: str, path: str, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ClientError(f"--result {path}: {place}: is not JSON: {error}") from None
