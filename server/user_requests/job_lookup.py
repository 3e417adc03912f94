"""Find the jobs that a request names, and check what the user may see or do with them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from pliant.core.arrays.task_numbers import TaskNumbers
from pliant.core.values.ids import JobId, task_job
from pliant.server.authorisation.access_control import AccessControl, RequestingUser
from pliant.server.authorisation.privacy import without_private
from pliant.server.database.reader import Reader
from pliant.server.registry.array_tasks import JobName, parse_job_name, tasks_of_array
from pliant.server.registry.job_selection import JobSelection
from pliant.server.registry.status_cache import Info, JobEntry, StatusCache
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests.request_fields import MAX_IDS, not_found

#: Jobs that are compared with a selection before requests of others are served: 1 to 2 ms.
_AT_ONCE = 2000
#: Most characters of the numbers of tasks in a message.
_MAX_SHOWN = 80
#: Maximum number of jobs in an answer that are read from the database.
MAX_OLD_JOBS = 20_000


class SelectedJobs(NamedTuple):
    """The jobs that match a request, and whether all of them are included."""

    #: By number, as the user may see them.
    infos: list[Info]
    #: Whether no older job was left out because there are too many.
    complete: bool


class JobLookup:
    """Finds jobs in the status cache or, if they ended long ago, in the database."""

    def __init__(self, status: StatusCache, reader: Reader, access: AccessControl) -> None:
        self._status, self._reader = status, reader
        #: The rules for users and roles.
        self.access = access

    def visible(self, info: Info, owner: int, peer: RequestingUser) -> Info:
        """Return the values of a job, without those that the user may not see.

        Args:
            info: the values of the job.
            owner: the user id of the job's owner.
            peer: the user who asks.
        """
        may_see = self.access.allows("private values", peer, owner)
        return info if may_see else without_private(info)

    def visible_jobs(
        self, entries: Iterable[JobEntry], peer: RequestingUser, fields: Collection[str] | None
    ) -> Iterator[Info]:
        """Yield the values of jobs, without those that the user may not see.

        The role of the user is looked up only once for each owner of jobs.

        Args:
            entries: the jobs.
            peer: the user who asks.
            fields: the values that are needed; None for all.
        """
        may_see: dict[int, bool] = {}
        for entry in entries:
            info, owner = self._status.info(entry, fields), entry.uid
            if owner not in may_see:
                may_see[owner] = self.access.allows("private values", peer, owner)
            yield info if may_see[owner] else without_private(info)

    async def find(self, ids: Sequence[int], peer: RequestingUser) -> dict[int, Info]:
        """Return the jobs with these numbers, as the user may see them; omit unknown numbers."""
        found: dict[int, Info] = {}
        for place, number in enumerate(ids, start=1):
            if place % _AT_ONCE == 0:
                await asyncio.sleep(0)  # let others be served
            entry = self._status.entry(JobId(number))
            if entry is not None:
                info = self._status.info(entry)
                found[number] = self.visible(info, entry.uid, peer)
        rest = [number for number in ids if number not in found]
        if rest:
            for job, summary in await self._reader.in_thread(lambda reader: reader.jobs(rest)):
                info = self._status.describe_stored(job, summary)
                found[job.id] = self.visible(info, job.spec.uid, peer)
        return found

    async def number(self, name: object, field: str = "id") -> object:
        """Return the number of the job that a name such as ``17`` or ``17_3`` (a task) stands for.

        If ``name`` is not a text, it is returned unchanged.

        Raises:
            UserRequestError: the text names no single task, or there is no such task. The error
                names the request's ``field``.
        """
        if not isinstance(name, str):
            return name
        named = parse_job_name(name, field)
        if named.tasks is None:
            return named.job
        if len(named.tasks) != 1:
            raise UserRequestError(
                f"{field}: {name} names {len(named.tasks)} tasks: name one, as in "
                f"{named.job}_{named.tasks.first}",
                field=field,
            )
        await self.tasks_among(named.job, named.tasks)
        return task_job(named.job, named.tasks.first)

    async def tasks_among(self, array: JobId, tasks: TaskNumbers) -> TaskNumbers:
        """Return the tasks in ``tasks`` that exist in an array.

        Raises:
            UserRequestError: the array has none of these tasks, or the job is not an array.
        """
        entry = self._status.entry(array)
        if entry is not None:
            numbers = tasks_of_array(entry.info)
        elif found := await self._reader.in_thread(lambda reader: reader.jobs([array])):
            stored = found[0][0].spec.tasks
            numbers = stored.numbers if stored is not None else None
        else:
            raise not_found(array)
        if numbers is None:
            raise UserRequestError(
                f"job {array} is not an array and has no tasks", kind="not_found", field="id"
            )
        present = numbers.common(tasks)
        if not present:
            raise UserRequestError(
                f"array {array} has no task {_short(tasks)}: its tasks are {_short(numbers)}",
                kind="not_found",
                field="id",
            )
        return present

    async def numbers(
        self, names: Sequence[int | str], most: int = MAX_OLD_JOBS
    ) -> tuple[list[int], list[int | str], bool]:
        """Return the numbers of the jobs that a list of names stands for.

        An array stands for itself and for its tasks that have become jobs, of which at most the
        last ``most`` are returned.

        Returns:
            The numbers, the names that are unknown, and whether all tasks of the arrays are
            included.

        Raises:
            UserRequestError: the list names too many single tasks.
        """
        named = [
            JobName(JobId(name)) if isinstance(name, int) else parse_job_name(name, "ids")
            for name in names
        ]
        whole = [each.job for each in named if each.tasks is None]
        old = [job for job in whole if self._status.entry(job) is None]
        arrays = set(await self._reader.in_thread(lambda reader: reader.arrays_among(old)))
        arrays |= {job for job in whole if self.is_array(job)}
        found: dict[int, None] = {}
        missing: list[int | str] = []
        named_tasks, complete = 0, True
        for each, name in zip(named, names, strict=True):
            if each.tasks is None:
                found[each.job] = None
                if each.job in arrays:
                    tasks = await self._tasks_of(each.job, most)
                    complete &= len(tasks) < most
                    found.update(dict.fromkeys(tasks))
                continue
            try:
                present = await self.tasks_among(each.job, each.tasks)
            except UserRequestError:
                missing.append(name)
                continue
            named_tasks += len(present)
            if named_tasks > MAX_IDS:
                raise UserRequestError(
                    f"ids: {name!s:.40} and those before name more than {MAX_IDS} tasks: name "
                    f"fewer, or the whole array: {each.job}",
                    field="ids",
                )
            if absent := each.tasks.without(present):
                missing.append(f"{each.job}_[{_short(absent)}]")
            found.update((task_job(each.job, task), None) for task in present)
        return list(found), missing, complete

    async def _tasks_of(self, array: JobId, most: int) -> Sequence[int]:
        """Return the job numbers of those tasks of an array that have already become jobs.

        If there are more than ``most``, only the ``most`` highest numbers are returned.
        """
        stored = await self._reader.in_thread(lambda reader: reader.tasks_of(array, most))
        return sorted({*stored, *self._status.tasks_of(array)})[-most:]

    async def entries(self, selection: JobSelection) -> list[JobEntry]:
        """Return the jobs in the status cache that match a selection, sorted by number."""
        found: list[JobEntry] = []
        candidates, patterns = self._status.candidates(selection), selection.patterns
        for start in range(0, len(candidates), _AT_ONCE):
            if start:
                await asyncio.sleep(0)  # let others be served
            some = candidates[start : start + _AT_ONCE]
            found += [entry for entry in some if selection.selects(entry.info, patterns)]
        return found

    async def select(
        self,
        selection: JobSelection,
        peer: RequestingUser,
        cached_since: float,
        fields: Collection[str] | None = None,
    ) -> SelectedJobs:
        """Return the jobs that match a selection, from the cache and the database.

        Args:
            selection: which jobs are wanted.
            peer: the user who asks.
            cached_since: jobs that ended before this time are read from the database.
            fields: the values that are needed; None for all.
        """
        visible = self.visible_jobs(await self.entries(selection), peer, fields)
        infos = {int(info["id"]): info for info in visible}
        if selection.ended_since is None or selection.ended_since >= cached_since:
            return SelectedJobs(list(infos.values()), complete=True)
        stored = await self._reader.in_thread(
            lambda reader: reader.ended_jobs(selection, cached_since, MAX_OLD_JOBS)
        )
        patterns = selection.patterns
        for job, summary in stored:
            info = self._status.describe_stored(job, summary)
            if job.id not in infos and selection.selects(info, patterns):
                infos[job.id] = self.visible(info, job.spec.uid, peer)
        ordered = [infos[number] for number in sorted(infos)]
        return SelectedJobs(ordered, complete=len(stored) < MAX_OLD_JOBS)

    async def check_owner(self, operation: str, job: JobId, peer: RequestingUser) -> str:
        """Check that a user may carry out an operation on a job, and return the job's state.

        The job is looked up in the database if it ended so long ago that the status cache has
        dropped it.

        Raises:
            UserRequestError: if there is no such job, or the user may not do this to it.
        """
        entry = self._status.entry(job)
        if entry is not None:
            owner, user, state = entry.uid, entry.info["user"], str(entry.info["state"])
        elif found := await self._reader.in_thread(lambda reader: reader.jobs([job])):
            spec = found[0][0].spec
            owner, user, state = spec.uid, spec.user, found[0][0].state.value
        else:
            raise not_found(job)
        self.access.check(operation, peer, owner, f"job {job} belongs to {user}")
        return state

    def is_array(self, job: JobId) -> bool:
        """Return whether a job in the status cache is an array."""
        entry = self._status.entry(job)
        return entry is not None and "array" in entry.info


def _short(tasks: TaskNumbers) -> str:
    """Return task numbers as a text for an error message, cut off if it is long."""
    text = str(tasks)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
