"""The generation of the server: it grows with each start, whichever copy of the database it has.

It is in the database, and once more in a file beside it. Where the file is ahead, somebody has put
an older copy of the database back: what was given since that copy must not be given again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from pliant.protos.daemons.files import write_whole
from pliant.server.database.commit_guard import KEY, CommitCount, LastSeen, stored_count
from pliant.server.database.meta_keys import (
    GENERATION,
    LAST_JOB_ID,
    MAX_ID_IN_FILE,
    NEXT_RESIZE,
    RUNS_FROM,
    parse_bounded_int,
)
from pliant.server.registry.job_ids import MAX_LOST_IDS

log = logging.getLogger(__name__)

FILE_NAME = "server.generation"
#: Runs that a job may have had in one generation; the messages between daemons have 32 bits.
_RUNS, _MOST_RUNS = 1000, 1 << 32


def next_generation(
    meta: Mapping[str, str], path: Path, last_job: int, seen: LastSeen
) -> Mapping[str, str]:
    """Return single values to store for this start: its generation, and numbers to leave out.

    Args:
        meta: single values as they are stored.
        path: the file.
        last_job: the highest number in the database.
        seen: how far the database was when a server last wrote to it.

    Raises:
        OSError: the file cannot be read, or is damaged.
    """
    stored, used = int(meta.get(GENERATION, "0")), max(read_used(path), seen.at.generation)
    generation = max(stored, used) + 1
    fresh = {GENERATION: str(generation), KEY: CommitCount(generation).to_text()}
    if not stored and not last_job:  # one that was begun anew has names of its own
        return fresh
    last = max(last_job, int(meta.get(LAST_JOB_ID, "0")))
    if used > stored:
        fresh |= _skip_lost_ids(meta, generation, last_job)
        last = max(last + MAX_LOST_IDS, seen.last_job)
        fresh[LAST_JOB_ID] = str(last)
        log.error(
            "the job database has generation %d, but this server has had generation %d: it is an "
            "older copy; jobs submitted since that copy are lost, new ones are numbered from %d",
            stored,
            used,
            last + 1,
        )
    elif seen.at > (count := stored_count(meta)):
        fresh |= _skip_lost_ids(meta, generation, last_job)
        last = max(last, seen.last_job)
        fresh[LAST_JOB_ID] = str(last)
        log.error(
            "the job database is at change %d of generation %d, but this server has stored change "
            "%d: it is an older copy, or its log (pliant.db-wal) was removed; jobs submitted since "
            "are lost, new ones are numbered from %d",
            count.number,
            count.generation,
            seen.at.number,
            last + 1,
        )
    return fresh


def _skip_lost_ids(meta: Mapping[str, str], generation: int, last_job: int) -> dict[str, str]:
    """Return what leaves out the numbers of runs and resizes that an older copy does not know."""
    run = generation * _RUNS % (_MOST_RUNS - _RUNS)
    return {
        RUNS_FROM: f"{last_job} {run}",
        NEXT_RESIZE: str(int(meta.get(NEXT_RESIZE, "1")) + MAX_LOST_IDS),
    }


def read_used(path: Path) -> int:
    """Return the last generation that was used; 0: none.

    Raises:
        OSError: it cannot be read, or is damaged.
    """
    try:
        return parse_bounded_int(path.read_text(encoding="ascii").strip(), MAX_ID_IN_FILE)
    except FileNotFoundError:
        return 0
    except ValueError:
        raise OSError(
            f"{path} does not hold the generation of the server: if the job database is the "
            "newest, remove the file; else put into it a number above all that nodes have in theirs"
        ) from None


def write_used(path: Path, generation: str) -> None:
    """Put it on the disk, whole or not at all, before it is used."""
    write_whole(path, f"{generation}\n")
