"""The operations of the Python client: how arguments become requests, and answers results.

Each function is a sequence of steps (`pliant.client.sans_io_operations`). `Client` takes the steps
in the thread of the caller, `AsyncClient` in an event loop, so both do the same. Arguments are
checked before the first step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pliant.client.api import argument_checks as checks
from pliant.client.api.output_files import read_output
from pliant.client.api.records import Availability, Event, Job, Node, Phase, Usage, Why, to_record
from pliant.client.client_errors import RequestError, UsageError
from pliant.client.reconnecting import Subscription, end_of_job, submission
from pliant.client.sans_io_operations import Ask, Call
from pliant.client.submission.build_job import build_job

if TYPE_CHECKING:
    from pliant.client.sans_io_operations import Steps


def submit(argv: Sequence[Any], sizes: Any, options: Mapping[str, Any]) -> Steps[int]:
    """Yield the requests that submit a job, and return its id as their result."""
    return (yield from submission(_job(argv, sizes, options)))


def query(argv: Sequence[Any], sizes: Any, options: Mapping[str, Any]) -> Steps[Availability]:
    """Yield the requests that ask the strategy whether and when it would start a job.

    The job is not submitted. The result of the steps is the strategy's answer.
    """
    answer = yield Ask("query", {"job": _job(argv, sizes, options)})
    return to_record(Availability, answer)


def _job(argv: Sequence[Any], sizes: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    checked = checks.submit_options(options, build_job.__kwdefaults__ or {})
    words = checks.check_words(argv) if argv or "script" not in checked else []
    try:
        return build_job(words, sizes=checks.check_sizes(sizes), **checked)
    except UsageError as error:
        raise checks.in_python(error) from None


def jobs(
    ids: Iterable[int | str] | None,
    ended: bool,
    users: Sequence[str],
    states: Sequence[str],
    names: Sequence[str],
    since: float | None,
) -> Steps[list[Job]]:
    """Yield the requests that fetch jobs, and return the jobs in the order of their ids.

    The arguments are those of `Client.jobs`.
    """
    named = None if ids is None else checks.job_ids(ids)
    fields: dict[str, Any] = {
        "users": checks.check_texts("users", users, '["ada"]'),
        "states": [
            state.upper()
            for state in checks.check_texts("states", states, '["RUNNING", "PENDING"]')
        ],
        "names": checks.check_texts("names", names, '["heat*"]'),
        "since": checks.seconds("since", since),
    }
    selected = {name: value for name, value in fields.items() if value}
    answer = yield Ask("jobs", {"ids": named, "all": ended or named is not None, **selected})
    return [to_record(Job, record) for record in answer["jobs"]]


def job(number: int | str) -> Steps[Job]:
    """Yield the requests that fetch one job, and return it as their result."""
    record = yield from _job_record(number)
    return to_record(Job, record)


def _job_record(number: int | str) -> Steps[Mapping[str, Any]]:
    answer = yield Ask("jobs", {"ids": [checks.job_id(number)], "all": True})
    for record in answer["jobs"]:
        found: Mapping[str, Any] = record
        return found
    raise RequestError(f"there is no job {number}", kind="not_found", field="id")


def output(number: int | str, tail: int | None) -> Steps[str]:
    """Yield the requests that read the output of a job, and return its text as their result.

    The text has the last ``tail`` lines of the output; all of it if ``tail`` is None.
    """
    if tail is not None:
        checks.check_whole("tail", tail, example="20 (lines), or None for everything")
    found = yield from job(number)
    return str((yield Call(partial(read_output, found, tail))))


def usage(number: int | str) -> Steps[Usage]:
    """Yield the requests that fetch the use of processors by a job, and return it as their result.

    It says how long the job waited and ran, and which processors it had over time.
    """
    from pliant.client.accounting.job_usage import job_records

    record = yield from _job_record(number)
    answer = yield Ask("accounting", {"ids": [number]})
    # Of an array, the phases are those of its tasks.
    phases_of_job = [{**phase, "job": record["id"]} for phase in answer["phases"]]
    (found,) = job_records([record], phases_of_job, answer["now"])
    phases = tuple(to_record(Phase, phase) for phase in found["phases"])
    return to_record(Usage, {**found, "phases": phases})


def nodes() -> Steps[list[Node]]:
    """Yield the requests that fetch all nodes, and return the nodes as their result."""
    answer = yield Ask("nodes", {})
    return [to_record(Node, record) for record in answer["nodes"]]


def cancel(ids: Sequence[int | str]) -> Steps[None]:
    """Yield the requests that cancel jobs."""
    if not ids:
        raise UsageError("ids: there is no job to cancel; write cancel(12), or cancel(*ids)")
    if len(ids) == 1 and isinstance(ids[0], list | tuple):
        raise UsageError(f"ids: expected ids one by one, got {ids[0]!r:.80}; write cancel(*ids)")
    answer = yield Ask("cancel", {"ids": checks.job_ids(ids)})
    faults = [result for result in answer["results"] if not result.get("ok")]
    if faults:
        raise RequestError("; ".join(f"job {each.get('id')}: {_message(each)}" for each in faults))


def _message(fault: Mapping[str, Any]) -> str:
    error = fault.get("error") or "not cancelled"
    return str(error.get("message") if isinstance(error, dict) else error)


def act(op: str, number: int | str) -> Steps[str]:
    """Yield the requests that carry out an operation on a job, and return the server's message.

    The operation, such as "hold", has no argument but the job.
    """
    answer = yield Ask(op, {"id": checks.job_id(number)})
    return str(answer.get("message", ""))


def set_priority(number: int | str, priority: int) -> Steps[str]:
    """Yield the requests that change the priority of a job, and return the server's message."""
    if not checks.is_whole(priority):
        raise checks.fault("priority", "a whole number, such as 10", priority)
    answer = yield Ask("priority", {"id": checks.job_id(number), "priority": priority})
    return str(answer.get("message", ""))


def resize(number: int | str, size: int, release: Sequence[str]) -> Steps[str]:
    """Yield the requests that offer a job another size, and return the server's message.

    Args:
        number: the job.
        size: processors that the job should have and keep; 0 lets the strategy choose again.
        release: nodes (``"n2"``) or slots of nodes (``"n1/0"``) to give up in a shrink.
    """
    fields = {
        "id": checks.job_id(number),
        "size": checks.check_whole("size", size, example="4; 0 lets the strategy choose"),
        "release": checks.check_texts("release", release, '["n2"] or ["n1/0"]'),
    }
    answer = yield Ask("resize", fields)
    return str(answer.get("message", ""))


def why(number: int | str) -> Steps[Why]:
    """Yield the requests that ask why a job waits or has its present size; return the reasons."""
    answer = yield Ask("why", {"id": checks.job_id(number)})
    return Why(tuple(answer["text"]), answer.get("facts") or {})


def history(number: int | str | None) -> Steps[list[Event]]:
    """Yield the requests that fetch the events of a job, or of all jobs and nodes; return these."""
    answer = yield Ask("history", {"id": None if number is None else checks.job_id(number)})
    return [to_record(Event, event) for event in answer["events"]]


def refusals() -> Steps[list[Event]]:
    """Yield the requests that fetch your refused requests, and return these, oldest first.

    An operator gets the refused requests of all users.
    """
    answer = yield Ask("refusals", {})
    return [to_record(Event, event) for event in answer["events"]]


def wait(number: int | str, timeout_s: float | None) -> Steps[Job]:
    """Yield the steps that wait until a job has ended, and return the job as their result.

    ``timeout_s`` are the seconds to wait at most; None means no limit.
    """
    limit_s = checks.seconds("timeout_s", timeout_s)
    record = yield from end_of_job(checks.job_id(number), timeout_s=limit_s)
    return to_record(Job, record)


def event_subscription(number: int | str | None, after: int | None) -> Subscription:
    """Return a subscription to the events of a job, or of all jobs and nodes.

    Args:
        number: the job; None for all jobs and nodes.
        after: the ``seq`` of an event, after which the subscription begins; None for new events
            only.
    """
    job = None if number is None else checks.job_id(number)
    last = (
        None if after is None else checks.check_whole("after", after, example="the seq of an event")
    )
    return Subscription({"id": job, "after": last, "events_only": True})


def events_in(message: Mapping[str, Any]) -> list[Event]:
    """Return the events in a message of a subscription."""
    return [to_record(Event, event) for event in message.get("events", ())]


def act_on_node(op: str, node: str, **fields: str) -> Steps[None]:
    """Yield the step that sends a request about a node to the server.

    Args:
        op: the operation, such as "resume".
        node: the name of the node.
        fields: further fields of the request.
    """
    yield Ask(op, {"node": checks.check_name("node", node, '"n1"'), **fields})


def drain(node: str, reason: str) -> Steps[None]:
    """Yield the requests that drain a node: no new jobs start there, and malleable jobs leave it.

    ``reason`` is a text that ``nodestat`` shows.
    """
    if not isinstance(reason, str):
        raise checks.fault("reason", "a text", reason)
    return (yield from act_on_node("drain", node, reason=reason))
