"""The Python client for asyncio: `AsyncClient`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pliant.client.api import operations
from pliant.client.api.async_connection import AsyncConnection, closed_error
from pliant.client.api.records import Availability, Event, Job, Node, Usage, Why
from pliant.client.client_errors import ClientError, NoServerError
from pliant.client.reconnecting import Subscription
from pliant.client.sans_io_operations import Ask, Call, Pause
from pliant.client.server_socket import TIMEOUT_S

if TYPE_CHECKING:
    from typing import Unpack

    from pliant.client.api.submit_options import SubmitOptions
    from pliant.client.sans_io_operations import Step, Steps

Result = TypeVar("Result")


class AsyncClient:
    """A connection to the server of a cluster for one event loop.

    ::

        async with AsyncClient() as client:
            numbers = [await client.submit("./solver", str(case)) for case in range(100)]
            jobs = await asyncio.gather(*map(client.wait, numbers))

    It has the methods of `Client`, with the same arguments, results and errors. Any number of tasks
    may use it at the same time: all requests share one connection, and each subscription to events
    has another one. A call may be cancelled, also by `asyncio.timeout`. If ``wait`` is cancelled,
    the server stops waiting for the job. Any other request that was sent is still carried out.
    """

    def __init__(
        self, run_dir: str | os.PathLike[str] | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Choose the cluster; the connection is opened by the first call.

        Args:
            run_dir: the folder of the server's socket; by default ``$PLIANT_RUN_DIR``, or ``run``
                in the state folder.
            timeout_s: seconds to wait for an answer; ``wait`` and ``submit`` wait longer.
        """
        chosen = None if run_dir is None else os.fspath(run_dir)
        self._link = AsyncConnection(chosen, timeout_s=timeout_s)

    @property
    def run_dir(self) -> str:
        """Return the folder of the server's socket."""
        return self._link.directory

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections; calls that still wait fail with a `ClientError`.

        Jobs are not affected.
        """
        await self._link.aclose()

    async def submit(
        self,
        *argv: str | os.PathLike[str],
        sizes: str | int = "1",
        **options: Unpack[SubmitOptions],
    ) -> int:
        """Submit a program with its arguments; return the job's id once it is stored on disk."""
        return await self._run(operations.submit(argv, sizes, options))

    async def query(
        self,
        *argv: str | os.PathLike[str],
        sizes: str | int = "1",
        **options: Unpack[SubmitOptions],
    ) -> Availability:
        """Ask the server's strategy whether and when it would start a job that is not submitted."""
        return await self._run(operations.query(argv, sizes, options))

    async def jobs(
        self,
        ids: Iterable[int | str] | None = None,
        *,
        ended: bool = False,
        users: Sequence[str] = (),
        states: Sequence[str] = (),
        names: Sequence[str] = (),
        since: float | None = None,
    ) -> list[Job]:
        """Return jobs in the order of their ids, by default all that have not ended.

        The arguments are those of `Client.jobs`.
        """
        return await self._run(operations.jobs(ids, ended, users, states, names, since))

    async def job(self, number: int | str) -> Job:
        """Return one job."""
        return await self._run(operations.job(number))

    async def output(self, number: int | str, *, tail: int | None = None) -> str:
        """Return the output of a job, or its last ``tail`` lines."""
        return await self._run(operations.output(number, tail))

    async def usage(self, number: int | str) -> Usage:
        """Return how long a job waited and ran, and its processors over time."""
        return await self._run(operations.usage(number))

    async def nodes(self) -> list[Node]:
        """Return all nodes that have registered, in order of the numbers of their processors."""
        return await self._run(operations.nodes())

    async def cancel(self, *ids: int | str) -> None:
        """Cancel waiting jobs, and end running ones."""
        await self._run(operations.cancel(ids))

    async def hold(self, number: int | str) -> None:
        """Hold a waiting job, so that it does not start."""
        await self._run(operations.act("hold", number))

    async def release(self, number: int | str) -> None:
        """Release a held job, so that it can start."""
        await self._run(operations.act("release", number))

    async def set_priority(self, number: int | str, priority: int) -> str:
        """Change the priority of a job that has not ended; return the server's message."""
        return await self._run(operations.set_priority(number, priority))

    async def suspend(self, number: int | str) -> str:
        """Make a running job write a checkpoint at its next safe point and then end.

        Returns:
            The server's message. The job is SUSPENDED when its processes have ended.
        """
        return await self._run(operations.act("suspend", number))

    async def resume_job(self, number: int | str) -> str:
        """Let a suspended job continue, at any of its sizes; return the server's message."""
        return await self._run(operations.act("resume_job", number))

    async def requeue(self, number: int | str) -> str:
        """End a job and start it again, from its last checkpoint if it has one.

        Returns:
            The server's message.
        """
        return await self._run(operations.act("requeue", number))

    async def resize(self, number: int | str, size: int, *, release: Sequence[str] = ()) -> str:
        """Offer a running job another size, and return without waiting for the resize.

        Args:
            number: the job.
            size: processors that the job should have and keep; 0 lets the strategy choose again.
            release: nodes (``"n2"``) or slots of nodes (``"n1/0"``) to give up in a shrink.

        Returns:
            The server's message; ``history`` shows the outcome.
        """
        return await self._run(operations.resize(number, size, release))

    async def why(self, number: int | str) -> Why:
        """Return why a waiting job waits, or why a running job has its present size."""
        return await self._run(operations.why(number))

    async def history(self, number: int | str | None = None) -> list[Event]:
        """Return the events of a job, or of all jobs and nodes, oldest first."""
        return await self._run(operations.history(number))

    def events(
        self, number: int | str | None = None, *, after: int | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yield events as they happen, for ever and across restarts of the server.

        ::

            async for event in client.events():
                print(event.kind, event.job, event.text)

        The connection of the subscription is closed when the iterator is: use
        `contextlib.aclosing` if you leave the loop early. Arguments and errors are those of
        `Client.events`.
        """
        return self._follow(operations.event_subscription(number, after))

    async def refusals(self) -> list[Event]:
        """Return your refused requests, oldest first; an operator gets those of all users."""
        return await self._run(operations.refusals())

    async def wait(self, number: int | str, *, timeout_s: float | None = None) -> Job:
        """Wait until a job has ended, even if the server restarts meanwhile, and return the job."""
        return await self._run(operations.wait(number, timeout_s))

    async def drain(self, node: str, reason: str = "") -> None:
        """Start no new jobs on a node, and ask malleable jobs to leave it."""
        await self._run(operations.drain(node, reason))

    async def resume(self, node: str) -> None:
        """Let jobs start on a drained node again."""
        await self._run(operations.act_on_node("resume", node))

    async def remove(self, node: str) -> None:
        """Remove a node from the server's list, because its host will not be used again."""
        await self._run(operations.act_on_node("remove", node))

    async def _follow(self, subscription: Subscription) -> AsyncGenerator[Event, None]:
        times_closed = self._link.times_closed
        while True:
            try:
                async with contextlib.aclosing(self._link.watch(**subscription.fields)) as messages:
                    async for message in messages:
                        subscription.received(message)
                        for event in operations.events_in(message):
                            yield event
            except NoServerError as error:
                await asyncio.sleep(subscription.pause(error))
                self._check_open(times_closed)

    async def _run(self, steps: Steps[Result]) -> Result:
        """Carry out the steps of an operation (requests and pauses), and return its result.

        The counterpart for the synchronous client is `sans_io_operations.run`.
        """
        times_closed = self._link.times_closed
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._take(step)
                    self._check_open(times_closed)
                except ClientError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            steps.close()

    async def _take(self, step: Step) -> Any:
        match step:
            case Ask(op, fields, limit_s):
                return await self._link.request(op, limit_s=limit_s, **fields)
            case Call(function):
                return await asyncio.to_thread(function)
            case Pause(seconds):
                return await asyncio.sleep(seconds)

    def _check_open(self, times_closed: int) -> None:
        if self._link.times_closed != times_closed:
            raise closed_error()
