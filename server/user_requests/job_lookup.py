"""Finding the jobs that a request names, and checking what the user may see or do with them."""

from __future__ import annotations

from collections.abc import Sequence

from pliant.core.values.ids import JobId
from pliant.server.authorisation.access_control import AccessControl, RequestingUser
from pliant.server.authorisation.privacy import without_private
from pliant.server.database.reader import Reader
from pliant.server.registry.status_cache import Info, StatusCache
from pliant.server.user_requests.request_fields import not_found


class JobLookup:
    """Jobs by number: from the status cache, or from the database if they ended long ago."""

    def __init__(self, status: StatusCache, reader: Reader, access: AccessControl) -> None:
        self._status, self._reader = status, reader
        #: The rules for users and roles.
        self.access = access

    def visible(self, info: Info, owner: int, peer: RequestingUser) -> Info:
        """Return what a user may see of a job."""
        may_see = self.access.allows("private values", peer, owner)
        return info if may_see else without_private(info)

    async def find(self, ids: Sequence[int], peer: RequestingUser) -> dict[int, Info]:
        """Return the jobs that exist, by number, as a user may see them."""
        found: dict[int, Info] = {}
        for number in ids:
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
