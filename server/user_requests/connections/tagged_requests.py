"""Requests with a tag: those of one connection that are carried out at the same time.

Without a tag, the requests of a connection are answered one after the other, so a request that
waits for the end of a job blocks the connection. A request with a ``tag`` (a number that the user
chooses) does not block it. Its answer has the same tag, and is sent as soon as it is known. So one
connection is enough for a program that waits for many jobs. The request ``forget`` cancels the
waiting request that has the same tag; ``forget`` has no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from pliant.server.support.user_request_error import UserRequestError

#: Requests of one connection that are carried out at once, apart from those that wait for a job.
#: While there are so many, no further request of the connection is read.
MAX_AT_ONCE = 32

Request = Mapping[str, Any]
Answer = Mapping[str, Any]
#: Carries out a request, and writes its answer with the tag.
Serve = Callable[[Request, int], Awaitable[None]]
#: Returns the answer to a request that waits for the end of a job.
AnswerWait = Callable[[Request], Coroutine[None, None, Answer]]
#: Writes an answer with the tag.
Write = Callable[[Answer, int], Awaitable[None]]


class TaggedRequests:
    """The unanswered requests of one connection that have a tag, a number that the user chose.

    The answer to such a request has the same tag, so answers may be sent in any order.
    """

    def __init__(self, serve: Serve, answer_wait: AnswerWait, write: Write) -> None:
        self._serve, self._answer_wait, self._write = serve, answer_wait, write
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        #: Waits for the end of a job. They may be cancelled, but not while an answer is written.
        self._waits: dict[int, asyncio.Task[Answer]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks that serve these requests."""
        return list(self._tasks.values())

    async def begin(self, request: Request, tag: object, on_answered: Callable[[], None]) -> None:
        """Start a request; if too many are being carried out, wait first until one has ended.

        Args:
            request: the request as the user sent it.
            tag: the value of its field ``tag``.
            on_answered: called when the request was answered or withdrawn (``forget``).

        Raises:
            UserRequestError: the tag is malformed or in use, or the request cannot have a tag. Then
                ``on_answered`` is not called.
        """
        number, op = _check_tag(tag), request.get("op")
        if op == "forget":
            self._forget(number)
            on_answered()
            return
        if number in self._tasks:
            raise UserRequestError(f"tag: {number} is that of a request in progress", field="tag")
        if op == "watch":
            raise UserRequestError(
                "tag: a subscription needs a connection of its own, and no tag", field="tag"
            )
        if op == "wait":
            answer = self._waits[number] = asyncio.ensure_future(self._answer_wait(request))
            task = asyncio.ensure_future(self._wait(answer, number))
        else:
            await self._turns.acquire()
            task = asyncio.ensure_future(self._take_turn(request, number))
        self._tasks[number] = task

        def end(ended: asyncio.Task[None]) -> None:
            del self._tasks[number]
            on_answered()
            if not ended.cancelled():
                ended.exception()  # the user has disconnected, which ends the connection, too

        task.add_done_callback(end)

    async def _take_turn(self, request: Request, tag: int) -> None:
        try:
            await self._serve(request, tag)
        finally:
            self._turns.release()

    async def _wait(self, answer: asyncio.Task[Answer], tag: int) -> None:
        await asyncio.wait({answer})
        del self._waits[tag]
        if not answer.cancelled():
            await self._write(answer.result(), tag)

    def _forget(self, tag: int) -> None:
        """Cancel the request with this tag if it waits for a job; other requests continue."""
        if (wait := self._waits.get(tag)) is not None:
            wait.cancel()

    async def wait_for_answer(self) -> bool:
        """Wait until one request is answered; return False if there is none to wait for.

        Requests that wait for the end of a job do not count, because this may take days.
        """
        tasks = [task for tag, task in self._tasks.items() if tag not in self._waits]
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return bool(tasks)

    async def answer_all(self, is_disconnected: Callable[[], bool], interval_s: float) -> None:
        """Wait until all requests are answered, or the user has disconnected."""
        while (tasks := self.tasks) and not is_disconnected():
            await asyncio.wait(tasks, timeout=interval_s)

    async def close(self) -> None:
        """Cancel the requests that wait for a job, and wait until all others are carried out."""
        for wait in self._waits.values():
            wait.cancel()
        if tasks := self.tasks:
            await asyncio.gather(*tasks, return_exceptions=True)


def _check_tag(tag: object) -> int:
    if not isinstance(tag, int) or isinstance(tag, bool) or not 0 <= tag < 1 << 62:
        raise UserRequestError(f"tag: expected a number, got {tag!r:.40}", field="tag")
    return tag
