"""From a request to a durable job: checked, numbered, stored - then acknowledged."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy.exc import IntegrityError

from pliant.core.events import JobSubmitted
from pliant.core.ids import JobId
from pliant.core.jobs import Job
from pliant.core.lifecycle import JobState
from pliant.server.board import Board
from pliant.server.clock import HybridClock
from pliant.server.database.changes import insert_job
from pliant.server.database.reader import Reader
from pliant.server.database.writer import Writer
from pliant.server.effects import Programs
from pliant.server.execute import Execute
from pliant.server.requests import RequestError, check_submission

#: A submission that is not durable by then is answered with "try again".
STORE_TIMEOUT_S = 30.0


class Submissions:
    """Numbers jobs and stores them."""

    def __init__(
        self,
        execute: Execute,
        board: Board,
        writer: Writer,
        reader: Reader,
        programs: Programs,
        clock: HybridClock,
        last_job: int,
    ) -> None:
        self._execute, self._board, self._writer = execute, board, writer
        self._reader, self._programs, self._clock = reader, programs, clock
        self._last = last_job

    async def submit(self, raw: Any, user: str, uid: int) -> int:
        """Take a job; when this returns, it survives whatever happens to the server."""
        submission = check_submission(raw, self._board.processors)
        request = submission.request
        self._last += 1
        spec = submission.spec(JobId(self._last), user, uid, self._clock.now())
        program = submission.program(spec)
        job = new_job(Job(spec, JobState.HELD if request.hold else JobState.PENDING))
        done = self._writer.commit([insert_job(job, program, request.key)])
        try:
            await asyncio.wait_for(asyncio.wrap_future(done), STORE_TIMEOUT_S)
        except IntegrityError:
            known = self._reader.job_with_key(uid, request.key) if request.key else None
            if known is None:
                raise
            return known
        except Exception as error:
            raise RequestError(
                f"the job database cannot be written ({error}): try again later",
                kind="unavailable",
            ) from error
        self._programs.keep(spec.id, program)
        self._board.put_summary(spec.id, program.summary())
        self._execute.post(JobSubmitted(spec, request.hold))
        return spec.id


def new_job(job: Job) -> Job:
    """Give a new job the reason it has until the core has seen it."""
    job.reason = "held by its user" if job.state is JobState.HELD else "waits its turn"
    job.story.append(f"{job.spec.submit:.3f} {job.state}: submitted")
    return job
