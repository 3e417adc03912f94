"""The Python client that waits for each answer: `Client`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pliant.client.api import operations
from pliant.client.api.records import Availability, Event, Job, Node, Usage, Why
from pliant.client.connection import Connection
from pliant.client.reconnecting import follow
from pliant.client.sans_io_operations import run
from pliant.client.server_socket import TIMEOUT_S

if TYPE_CHECKING:
    from typing import Unpack

    from pliant.client.api.submit_options import SubmitOptions


class Client:
    """A connection to the server of a cluster; use it from one thread at a time.

    ::

        with Client() as client:
            number = client.submit("./solver", sizes="1-8")
            print(client.wait(number).state)

    Every method raises `NoServerError` if there is no server, its subclass `LostServerError` if
    the server leaves or is silent after the request, `RequestError` if the server refuses, and
    `UsageError`, before anything is sent, if an argument is wrong. All errors are listed in
    docs/errors.md. A job is named by its id, and a task of an array also as in ``"17_3"``.
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
        self._link = Connection(chosen, timeout_s=timeout_s)

    @property
    def run_dir(self) -> str:
        """Return the folder of the server's socket."""
        return self._link.directory

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the server; jobs are not affected."""
        self._link.close()

    def submit(
        self,
        *argv: str | os.PathLike[str],
        sizes: str | int = "1",
        **options: Unpack[SubmitOptions],
    ) -> int:
        """Submit a program with its arguments; return the job's id once it is stored on disk.

        If the server is restarted in the meantime, the job is submitted again, and only once.

        Args:
            argv: the program, searched in PATH, and its arguments.
            sizes: numbers of processors that the job may have, such as ``4`` or ``"1-8:pow2"``.
            options: as of ``jobsub``, whose help explains them:

                - the job: ``name``, ``type``, ``account``, ``comment``, ``priority`` (a whole
                  number), ``hold``, ``dependency`` (such as ``"afterok:12"``), ``signal`` (such as
                  ``"USR1@60"``, before the time limit), ``script`` (text of a script, instead of
                  the program);
                - messages: ``notify`` (a mail address or a URL), ``notify_on`` (such as
                  ``"start,end"``);
                - an array: ``array``, the numbers of its tasks, such as ``"1-1000%50"``; the
                  program runs once for each number, at most 50 of them at once;
                - files: ``chdir``, ``stdin``, ``stdout``, ``stderr``, ``open_mode`` (``truncate``
                  or ``append``), ``env``, ``record_load_s`` (seconds between rows of the record
                  of the load, from 0.01 to 60);
                - sizes: ``prefer``, ``speedup``, ``grow_if`` (``gain`` or ``always``);
                - times: ``time_limit_s`` and ``estimate_s`` in seconds, ``deadline_s`` (seconds
                  from now) or ``deadline_at`` (seconds since the epoch), ``begin_s`` or
                  ``begin_at`` (its earliest start, in the same units), ``profit`` (a number, or a
                  profit function such as ``"1000:soft=0.25:penalty=50"``);
                - nodes: ``constraint``, ``nodelist`` and ``exclude`` (such as ``"n[01-16]"``),
                  ``bind`` (ranks to CPUs: ``rank``, ``node`` or ``none``), ``components`` (the
                  processors of each component, such as ``[4, 2]``, instead of ``sizes``);
                - for each process: ``mem_per_cpu`` (``"4G"``, or bytes), ``gpus``, ``gres`` (such
                  as ``["fpga:1"]``); for the job: ``resources`` (such as ``["matlab=1/proc"]``);
                - failures: ``requeue`` (True or False; None requeues the job after the loss of a
                  node only if it can change its size and has a checkpoint), ``when_cut_off``
                  (``keep`` or ``stop-after=30s``).

        Raises:
            SubmitError: a check of program, files or environment failed; ``field`` names it.
            UsageError: an argument is malformed, or there is no program.
            RequestError: the server refuses the job.
            TypeError: there is no such option.
        """
        return run(self._link, operations.submit(argv, sizes, options))

    def query(
        self,
        *argv: str | os.PathLike[str],
        sizes: str | int = "1",
        **options: Unpack[SubmitOptions],
    ) -> Availability:
        """Ask the server's strategy whether and when it would start a job that is not submitted.

        Args:
            argv: as for ``submit``.
            sizes: as for ``submit``.
            options: as for ``submit``.

        Raises:
            SubmitError: a check of program, files or environment failed; ``field`` names it.
            UsageError: an argument is malformed, or there is no program.
            RequestError: the job is malformed, or there are too many queries at this time.
            TypeError: there is no such option.
        """
        return run(self._link, operations.query(argv, sizes, options))

    def jobs(
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

        Args:
            ids: the jobs to return, or None for all that have not ended. Unknown ids are skipped.
                The id of an array stands for the array and its tasks that have become jobs;
                ``"17_3"`` and ``"17_[5-10]"`` name tasks.
            ended: whether to add, without ``ids``, the jobs that ended within the last hour.
            users: only jobs of these users.
            states: only jobs in these states, such as ``["RUNNING"]``.
            names: only jobs with these names; ``*`` stands for any characters, ``?`` for one, and
                ``[...]`` for one of the characters in the brackets.
            since: without ``ids``, also return the jobs that ended since this time, in seconds
                since the epoch.
        """
        return run(self._link, operations.jobs(ids, ended, users, states, names, since))

    def job(self, number: int | str) -> Job:
        """Return one job.

        Raises:
            RequestError: there is no job with this id (kind ``not_found``).
        """
        return run(self._link, operations.job(number))

    def output(self, number: int | str, *, tail: int | None = None) -> str:
        """Return the output of a job, from the file that this host shares with the nodes.

        Args:
            number: the job.
            tail: the number of lines to return from the end; None for everything.

        Returns:
            The text; empty if the job has not started. Bytes that are no UTF-8 are replaced.

        Raises:
            RequestError: there is no such job, or this host cannot read the file (kind
                ``not_found``).
        """
        return run(self._link, operations.output(number, tail))

    def usage(self, number: int | str) -> Usage:
        """Return how long a job waited and ran, and its processors over time.

        Raises:
            RequestError: there is no job with this id (kind ``not_found``).
        """
        return run(self._link, operations.usage(number))

    def nodes(self) -> list[Node]:
        """Return all nodes that have registered, in order of the numbers of their processors."""
        return run(self._link, operations.nodes())

    def cancel(self, *ids: int | str) -> None:
        """Cancel waiting jobs, and end running ones.

        Args:
            ids: the jobs; ``"17_3"`` and ``"17_[5-10]"`` name tasks of an array.

        Raises:
            RequestError: some jobs could not be cancelled; the text names each. All other jobs
                were cancelled.
        """
        run(self._link, operations.cancel(ids))

    def hold(self, number: int | str) -> None:
        """Hold a waiting job, so that it does not start.

        Raises:
            RequestError: the job does not wait.
        """
        run(self._link, operations.act("hold", number))

    def release(self, number: int | str) -> None:
        """Release a held job, so that it can start.

        Raises:
            RequestError: the job is not held.
        """
        run(self._link, operations.act("release", number))

    def set_priority(self, number: int | str, priority: int) -> str:
        """Change the priority of a job that has not ended; return the server's message.

        Args:
            number: the job.
            priority: jobs with a higher priority start first. Only an operator may raise it.

        Raises:
            RequestError: the job has ended, or you may not raise its priority, or the new priority
                is out of bounds.
        """
        return run(self._link, operations.set_priority(number, priority))

    def suspend(self, number: int | str) -> str:
        """Make a running job write a checkpoint at its next safe point and then end.

        Returns:
            The server's message. The job is SUSPENDED when its processes have ended.

        Raises:
            RequestError: the job does not run, is being resized, or has not registered; or its
                coordinator is not connected, or cannot use the folder of checkpoints.
        """
        return run(self._link, operations.act("suspend", number))

    def resume_job(self, number: int | str) -> str:
        """Let a suspended job continue, at any of its sizes; return the server's message.

        Raises:
            RequestError: the job is not suspended, or its processes have not ended yet.
        """
        return run(self._link, operations.act("resume_job", number))

    def requeue(self, number: int | str) -> str:
        """End a job and start it again, from its last checkpoint if it has one.

        Returns:
            The server's message.

        Raises:
            RequestError: the job has not started, or has ended.
        """
        return run(self._link, operations.act("requeue", number))

    def resize(self, number: int | str, size: int, *, release: Sequence[str] = ()) -> str:
        """Offer a running job another size, and return without waiting for the resize.

        Args:
            number: the job.
            size: processors that the job should have and keep; 0 lets the strategy choose again.
            release: nodes (``"n2"``) or slots of nodes (``"n1/0"``) to give up in a shrink.

        Returns:
            The server's message; ``history`` shows the outcome.

        Raises:
            RequestError: the job cannot be resized, or not now, or not to this size.
        """
        return run(self._link, operations.resize(number, size, release))

    def why(self, number: int | str) -> Why:
        """Return why a waiting job waits, or why a running job has its present size.

        Raises:
            RequestError: there is no job with this id (kind ``not_found``).
        """
        return run(self._link, operations.why(number))

    def history(self, number: int | str | None = None) -> list[Event]:
        """Return the events of a job, or of all jobs and nodes, oldest first.

        Raises:
            RequestError: there is no such job (kind ``not_found``).
        """
        return run(self._link, operations.history(number))

    def events(
        self, number: int | str | None = None, *, after: int | None = None
    ) -> Iterator[Event]:
        """Yield events as they happen, for ever and across restarts of the server.

        Args:
            number: the job, or None for all jobs and nodes that you may see.
            after: the ``seq`` of an event: begin with the next one; None for new events only.

        Raises:
            RequestError: there is no such job (kind ``not_found``), or you may not see its events.
            NoServerError: there has been no server for a minute.
        """
        subscription = operations.event_subscription(number, after)

        def events() -> Iterator[Event]:
            with Connection(self._link.directory) as link:
                for message in follow(link, subscription):
                    yield from operations.events_in(message)

        return events()

    def refusals(self) -> list[Event]:
        """Return your refused requests, oldest first; an operator gets those of all users."""
        return run(self._link, operations.refusals())

    def wait(self, number: int | str, *, timeout_s: float | None = None) -> Job:
        """Wait until a job has ended, even if the server restarts meanwhile, and return the job.

        Args:
            number: the job.
            timeout_s: seconds to wait at most; None for no limit. The job continues afterwards.

        Raises:
            WaitTimeoutError: the job has not ended in time. It is a `TimeoutError`, too.
            RequestError: there is no job with this id (kind ``not_found``).
            NoServerError: there has been no server for a minute.
        """
        return run(self._link, operations.wait(number, timeout_s))

    def drain(self, node: str, reason: str = "") -> None:
        """Start no new jobs on a node, and ask malleable jobs to leave it.

        Args:
            node: the name of the node.
            reason: shown by ``nodestat``.

        Raises:
            RequestError: there is no such node, or only an operator may do it.
        """
        run(self._link, operations.drain(node, reason))

    def resume(self, node: str) -> None:
        """Let jobs start on a drained node again.

        Raises:
            RequestError: there is no such node, or only an operator may do it.
        """
        run(self._link, operations.act_on_node("resume", node))

    def remove(self, node: str) -> None:
        """Remove a node from the server's list, because its host will not be used again.

        Raises:
            RequestError: there is no such node, its controller is connected, or jobs hold it.
        """
        run(self._link, operations.act_on_node("remove", node))
