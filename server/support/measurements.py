"""Counts and durations since the start of the server, which the operation ``metrics`` returns."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

_SHORT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LONG_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_NUMBERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

#: Upper bounds of the buckets of each histogram.
BOUNDS: Mapping[str, Sequence[float]] = {
    "pass_seconds": _SHORT_S,
    "commit_seconds": _SHORT_S,
    "commit_transactions": _NUMBERS,
    "commit_rows": _NUMBERS,
    "request_seconds": _SHORT_S,
    "resize_step_seconds": _LONG_S,
}
#: Combinations of labels of one counter or histogram. Further ones are counted under `OTHER`.
MAX_LABELS = 200
OTHER = "other"


class _Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class Measurements:
    """Counters and histograms. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[tuple[str, ...], int]] = {}
        self._histograms: dict[str, dict[tuple[str, ...], _Histogram]] = {
            name: {} for name in BOUNDS
        }

    def count(self, name: str, *labels: str) -> None:
        """Increment the counter with this name and these label values."""
        with self._lock:
            known = self._counters.setdefault(name, {})
            key = _bounded(known, labels)
            known[key] = known.get(key, 0) + 1

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add a value to the histogram ``name``, which must be a key of `BOUNDS`."""
        with self._lock:
            known = self._histograms[name]
            key = _bounded(known, labels)
            found = known.get(key)
            if found is None:
                found = known[key] = _Histogram(BOUNDS[name])
            found.add(value)

    def snapshot(self) -> dict[str, Any]:
        """Return all values in a form for JSON.

        A histogram has one count for each bucket, not cumulated. The last bucket has no upper
        bound.
        """
        with self._lock:
            return {
                "counters": {
                    name: [[list(labels), number] for labels, number in known.items()]
                    for name, known in self._counters.items()
                },
                "histograms": {
                    name: {
                        "bounds": list(BOUNDS[name]),
                        "series": [[list(k), list(h.counts), h.sum] for k, h in known.items()],
                    }
                    for name, known in self._histograms.items()
                },
            }


def _bounded(known: Mapping[tuple[str, ...], object], labels: tuple[str, ...]) -> tuple[str, ...]:
    if labels in known or len(known) < MAX_LABELS:
        return labels
    return (OTHER,) * len(labels)
