"""Submissions: check a job, give it a number, store it, and then acknowledge it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.exc import IntegrityError

from pliant.core.arrays.task_numbers import LARGEST_ARRAY_SIZE
from pliant.core.events import JobSubmitted
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.support.plural import plural
from pliant.core.transitions.begin_times import begin_reason
from pliant.core.values.fair_share_settings import AccountError, Shares
from pliant.core.values.ids import JobId
from pliant.faults import failpoint
from pliant.protos.staging.archive import StagingError
from pliant.server.database.database_errors import is_locked, sqlite_message
from pliant.server.database.reader import Reader
from pliant.server.database.statements import Write, insert_job
from pliant.server.database.writer import Writer
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.execution.job_program_cache import ProgramCache
from pliant.server.registry.job_ids import JobIdAllocator
from pliant.server.registry.job_program import Program
from pliant.server.registry.status_cache import StatusCache
from pliant.server.staging.staged_files import StagedFiles
from pliant.server.support.clock import HybridClock
from pliant.server.support.notify_rules import NotifyRules, parse_receiver
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests.submission.condition_checks import find_ended
from pliant.server.user_requests.submission.submission_schema import (
    StageRequest,
    Submission,
    check_submission,
)

#: Maximum number of submissions in one transaction.
TOGETHER = 256


@dataclass(frozen=True, slots=True)
class _AcceptedJob:
    """A submission that was accepted, and is not stored in the database yet."""

    job: Job
    program: Program
    change: Write
    event: JobSubmitted
    stored: asyncio.Future[None]


class Submissions:
    """Checks submitted jobs, numbers them and stores them. Runs in the accept thread's loop."""

    def __init__(
        self,
        core_loop: CoreLoop,
        status: StatusCache,
        writer: Writer,
        reader: Reader,
        programs: ProgramCache,
        clock: HybridClock,
        job_ids: JobIdAllocator,
    ) -> None:
        self._core_loop, self._status, self._writer = core_loop, status, writer
        self._reader, self._programs, self._clock = reader, programs, clock
        self._job_ids = job_ids
        #: The accounts, and who may use them. Replaced when the configuration is read again.
        self.shares = Shares()
        #: The numbers of an array's tasks are smaller. Replaced likewise.
        self.max_array_size = LARGEST_ARRAY_SIZE
        #: Processors that a federation may claim for jobs. Replaced likewise.
        self.federated_processors = 0
        #: Whom the server may tell about events of jobs.
        self.notify_rules = NotifyRules()
        #: The files that users have sent for their jobs.
        self.staging: StagedFiles | None = None
        self._waiting: list[_AcceptedJob] = []
        self._storing: asyncio.Task[None] | None = None

    def configure(self, shares: Shares, max_array_size: int, federated_processors: int) -> None:
        """Set the settings for all later submissions.

        Args:
            shares: the settings of fair-share scheduling.
            max_array_size: the numbers of an array's tasks must be smaller.
            federated_processors: jobs up to this size are accepted, even if the cluster is smaller,
                because a federation may claim processors at other sites.
        """
        self.shares, self.max_array_size = shares, max_array_size
        self.federated_processors = federated_processors

    def check(self, raw: Any, user: str) -> Submission:
        """Check a submission of a user, and return it with parsed values.

        Raises:
            UserRequestError: if it is invalid, or can never run on this cluster.
        """
        submission = check_submission(
            raw,
            max(self._status.processors, self.federated_processors),
            time.time(),
            self._status.resources,
            self._status.node_views,
            self.max_array_size,
        )
        self._check_notify(submission.request.notify)
        try:
            account = self.shares.account_for(user, submission.request.account)
        except AccountError as error:
            raise UserRequestError(str(error), kind="refused", field="account") from None
        limit = self._status.submission_limits.limits.of(user).running_processors
        if limit is not None and submission.sizes.min > limit:
            raise UserRequestError(
                f"sizes {submission.sizes} can never be satisfied: {user} may use "
                f"{plural(limit, 'processor')} at once (user_limits.running_processors)",
                kind="refused",
                field="sizes",
            )
        return replace(submission, account=account)

    def _check_notify(self, receiver: str) -> None:
        """Check that the server may send messages about the job to a receiver.

        Raises:
            UserRequestError: the configuration does not allow it.
        """
        refusal = self.notify_rules.refusal(parse_receiver(receiver)) if receiver else ""
        if refusal:
            raise UserRequestError(f"notify: {refusal}", kind="refused", field="notify")

    async def submit(self, raw: Any, user: str, uid: int, *, exempt: bool = False) -> int:
        """Store a job and return its number. The job is durable when this returns.

        Args:
            raw: the submission as the client sent it.
            user: the name of its owner.
            uid: the user id of its owner.
            exempt: if True, the limits that the configuration sets for all users do not apply.

        Raises:
            UserRequestError: if it is invalid, exceeds a limit, or cannot be stored.
        """
        submission = self.check(raw, user)
        request = submission.request
        ended: dict[JobId, JobState] = {}
        if submission.dependencies:
            try:
                ended = await find_ended(submission.dependencies, self._status, self._reader)
            except UserRequestError:
                # A client that repeats a submission must get its job, although others have ended.
                known = await self._job_with_key(uid, request.key) if request.key else None
                if known is None:
                    raise
                return known
        if request.stage is not None:
            try:
                await self._check_upload(uid, request.stage)
            except UserRequestError:
                # The upload has become the archive of the job that was submitted with this key.
                known = await self._job_with_key(uid, request.key) if request.key else None
                if known is None:
                    raise
                return known
        pending, size = self._status.submission_limits, submission.program_bytes
        jobs, numbers = submission.job_count, submission.number_count
        if refusal := pending.admit(user, size, time.monotonic(), exempt=exempt, jobs=jobs):
            raise UserRequestError(refusal, kind="refused")
        spec = submission.spec(JobId(self._job_ids.next(numbers)), user, uid, self._clock.now())
        if request.stage is not None:
            self._use_upload(uid, request.stage, spec.id)
        program = submission.program(spec)
        job = with_first_reason(Job(spec, JobState.HELD if request.hold else JobState.PENDING))
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        change = insert_job(job, program, request.key)
        new = _AcceptedJob(job, program, change, JobSubmitted(spec, request.hold, ended), stored)
        pending.add(job.id, user, size, jobs)
        self._waiting.append(new)
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_waiting())
        try:
            await stored  # no timeout here: a job must not be stored after it was refused
        except IntegrityError:
            pending.forget(job.id)
            self._return_to_uploads(uid, request.stage, job.id)
            known = await self._job_with_key(uid, request.key) if request.key else None
            if known is None:
                raise
            return known
        except Exception as error:
            pending.forget(job.id)
            self._return_to_uploads(uid, request.stage, job.id)
            raise UserRequestError(
                f"the job database cannot be written ({sqlite_message(error)}): try again later",
                kind="unavailable",
            ) from error
        return spec.id

    async def _check_upload(self, uid: int, stage: StageRequest) -> None:
        """Check that the files of a job have arrived.

        Raises:
            UserRequestError: the files are missing or damaged.
        """
        assert self.staging is not None
        try:
            await self.staging.in_thread(
                self.staging.check_upload, uid, stage.upload, stage.size, stage.sha256
            )
        except (StagingError, OSError) as error:
            raise UserRequestError(f"stage: {error}", kind="refused", field="stage") from None

    def _use_upload(self, uid: int, stage: StageRequest, job: JobId) -> None:
        """Assign uploaded files to a job; they are removed when the job has ended."""
        assert self.staging is not None
        try:
            self.staging.use_upload(uid, stage.upload, job)
        except OSError as error:
            raise UserRequestError(f"stage: {error.strerror}", kind="unavailable") from None

    def _return_to_uploads(self, uid: int, stage: StageRequest | None, job: JobId) -> None:
        """Make the files of a job that was not stored available to another submission."""
        if self.staging is not None and stage is not None:
            self.staging.return_to_uploads(uid, stage.upload, job)

    async def _job_with_key(self, uid: int, key: str) -> int | None:
        return await self._reader.in_thread(lambda reader: reader.job_with_key(uid, key))

    async def _store_waiting(self) -> None:
        """Store the waiting submissions, many in one commit, until none is left.

        Submissions that are stored together share one flush to disk.
        """
        try:
            while self._waiting:
                together, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
                await self._store(together)
        finally:
            self._storing = None

    async def _store(self, together: list[_AcceptedJob]) -> None:
        try:
            changes = [new.change for new in together]
            failpoint("server.submit.before_commit")
            await asyncio.wrap_future(self._writer.commit(changes))
            failpoint("server.submit.after_commit")
        except Exception as error:
            if len(together) > 1 and not is_locked(error):
                for new in together:  # one bad job must not prevent the others
                    await self._store([new])
                return
            for new in together:
                if not new.stored.done():
                    new.stored.set_exception(error)
            return
        self._hand_over(together)

    def _hand_over(self, together: list[_AcceptedJob]) -> None:
        """Publish stored jobs and pass them to the core, before their users get the job numbers."""
        for new in together:
            self._programs.keep(new.job.id, new.program)
            self._status.publish_summary(new.job.id, new.program.summary())
        # The core may be busy, but a user who has the number must find the job in every list.
        self._status.publish_jobs(new.job for new in together)
        self._core_loop.post(*(new.event for new in together))
        for new in together:
            if not new.stored.done():
                new.stored.set_result(None)


def with_first_reason(job: Job) -> Job:
    """Set the reason and the first line of the history of a new job, and return this job."""
    job.reason = "held by its user" if job.state is JobState.HELD else "waits in the queue"
    if job.spec.begin is not None and job.state is JobState.PENDING:
        job.reason, job.wait = "", begin_reason(job.spec.begin)
    job.history.append(f"{job.spec.submit:.3f} {job.state}: submitted")
    return job
