"""The generation of the server: a number that grows with each start.

It is stored in the database and in a file next to it. If the number in the file is higher, an older
copy of the database was restored. Then numbers of jobs, runs and resizes that were used since that
copy must not be used again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from pliant.protos.daemons.atomic_files import write_whole
from pliant.server.database.meta_keys import (
    GENERATION,
    LAST_JOB_ID,
    MAX_ID_IN_FILE,
    NEXT_RESIZE,
    RUNS_FROM,
    parse_bounded_int,
)
from pliant.server.database.replaced_database_check import KEY, CommitCount, LastSeen, stored_count
from pliant.server.registry.job_ids import MAX_LOST_IDS

log = logging.getLogger(__name__)

FILE_NAME = "server.generation"
#: Run numbers reserved for one generation, and the limit of run numbers, which are sent as 32 bits.
_RUNS, _MOST_RUNS = 1000, 1 << 32


def next_generation(
    meta: Mapping[str, str], path: Path, last_job: int, seen: LastSeen
) -> Mapping[str, str]:
    """Return the values to store in the table ``meta`` when the server starts.

    They contain the new generation, the number of this start. If the database is an older copy,
    they also contain the numbers from which jobs, runs and resizes are counted, so that no number
    is used twice.

    Args:
        meta: the stored values.
        path: the file with the last generation.
        last_job: the highest job number in the database.
        seen: the last transaction and job number that a server recorded next to the database.

    Raises:
        OSError: if the file cannot be read or is damaged.
    """
    stored = int(meta.get(GENERATION, "0"))
    used = max(read_last_generation(path), seen.at.generation)
    generation = max(stored, used) + 1
    fresh = {GENERATION: str(generation), KEY: CommitCount(generation).to_text()}
    if not stored and not last_job:  # a new database: its cluster has a new name, too
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
    """Return values for the table ``meta`` so that numbers of lost runs and resizes are not reused.

    They are needed if the database is an older copy, which does not contain the numbers that were
    used after it was made.

    Args:
        meta: the stored values.
        generation: the number of this start of the server.
        last_job: the highest job number in the database.
    """
    run = generation * _RUNS % (_MOST_RUNS - _RUNS)
    return {
        RUNS_FROM: f"{last_job} {run}",
        NEXT_RESIZE: str(int(meta.get(NEXT_RESIZE, "1")) + MAX_LOST_IDS),
    }


def read_last_generation(path: Path) -> int:
    """Return the last generation (number of a server's start) that was used; 0 if there was none.

    Raises:
        OSError: if the file cannot be read or is damaged.
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


def write_last_generation(path: Path, generation: str) -> None:
    """Store the number of this start of the server in a file, durably and in one step."""
    write_whole(path, f"{generation}\n")
