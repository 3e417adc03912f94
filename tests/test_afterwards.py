"""The invariants of a cluster at rest: what daemons use is told when it swells, and only then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testkit.afterwards import BYTES_PER_JOB, DESCRIPTORS, MARGIN, THREADS, Use, swollen

BEFORE = Use(resident=100 << 20, descriptors=20, threads=10)
#: As much as is allowed, after a hundred jobs.
JOBS = 100
MOST = Use(
    int(BEFORE.resident * (1 + MARGIN)) + JOBS * BYTES_PER_JOB,
    BEFORE.descriptors + DESCRIPTORS,
    BEFORE.threads + THREADS,
)


def test_what_is_allowed_is_not_told() -> None:
    assert swollen("server", BEFORE, MOST, JOBS, MARGIN) == []


@pytest.mark.parametrize("what", ["resident", "descriptors", "threads"])
def test_what_swells_is_told(what: str) -> None:
    now = replace(MOST, **{what: getattr(MOST, what) + 2})
    (told,) = swollen("server", BEFORE, now, JOBS, MARGIN)
    assert told.startswith("I10: server keeps ")


def test_memory_of_jobs_that_did_not_end_is_told() -> None:
    assert swollen("server", BEFORE, MOST, JOBS - 1, MARGIN)
