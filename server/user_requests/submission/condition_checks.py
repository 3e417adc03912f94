"""Check the dependencies, begin time, warning signal, messages and components of a submission."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pliant.core.arrays.task_numbers import ArrayTasks, parse_array
from pliant.core.model.lifecycle import FINAL_STATES, JobState
from pliant.core.model.warning_signal import WarningSignal, parse_warning
from pliant.core.support.input_limits import MAX_DURATION_S
from pliant.core.values.dependencies import Dependency, DependencyKind, parse_dependencies
from pliant.core.values.ids import JobId
from pliant.core.values.profit_contract import Contract
from pliant.core.values.sizes import Sizes
from pliant.server.database.reader import Reader
from pliant.server.registry.status_cache import StatusCache
from pliant.server.support.notify_rules import parse_events, parse_receiver
from pliant.server.support.user_request_error import UserRequestError

#: Longest comment, in characters, and longest list of dependencies.
MAX_COMMENT, MAX_DEPENDENCY_LENGTH = 1024, 4096
#: Most components of a job.
MAX_COMPONENTS = 256


def check_dependencies(text: str) -> tuple[Dependency, ...]:
    """Parse the dependencies of a submitted job; an empty text means none.

    Raises:
        UserRequestError: if the text does not follow the grammar of dependencies.
    """
    if not text:
        return ()
    try:
        if len(text) > MAX_DEPENDENCY_LENGTH:
            raise ValueError(f"longer than {MAX_DEPENDENCY_LENGTH} characters")
        return parse_dependencies(text)
    except ValueError as error:
        raise UserRequestError(f"dependency: {error}", field="dependency") from None


def check_array(text: str, max_array_size: int) -> ArrayTasks | None:
    """Parse the task numbers of a submitted array; None if the text is empty: it is no array.

    Raises:
        UserRequestError: if the text is not in the grammar of arrays, or a number is too large.
    """
    if not text:
        return None
    try:
        return parse_array(text, max_array_size)
    except ValueError as error:
        raise UserRequestError(f"array: {error}", field="array") from None


def check_warning(text: str, time_limit_s: float | None) -> WarningSignal | None:
    """Parse the signal that a job gets before its time limit; None if the text is empty.

    Raises:
        UserRequestError: the text is invalid, or the job has no time limit.
    """
    if not text:
        return None
    try:
        warning = parse_warning(text[:80])
    except ValueError as error:
        raise UserRequestError(f"signal: {error}", field="signal") from None
    if time_limit_s is None:
        raise UserRequestError(
            f"signal: {text} needs a time limit (--time), before which it is sent", field="signal"
        )
    return warning


def check_begin(begin_s: float | None, begin_at: float | None, wall: float) -> float | None:
    """Return the seconds after submission at which a job may start; None if at once.

    Args:
        begin_s: seconds from the submission.
        begin_at: seconds since the epoch. If this time has passed, the job may start at once.
        wall: the wall-clock time of the server, seconds since the epoch.

    Raises:
        UserRequestError: both are given, or the time is out of range.
    """
    if begin_s is not None and begin_at is not None:
        raise UserRequestError("begin_s and begin_at: give one of them", field="begin_s")
    seconds = begin_at - wall if begin_at is not None else begin_s
    if seconds is None:
        return None
    if not (math.isfinite(seconds) and seconds <= MAX_DURATION_S) or (begin_s or 0.0) < 0:
        raise UserRequestError(
            f"begin: expected 0 to {MAX_DURATION_S:g} seconds from now, got {seconds:g}",
            field="begin",
        )
    return seconds if seconds > 0 else None


def contract_from_begin(contract: Contract | None, begin_s: float | None) -> Contract | None:
    """Return a job's contract (deadline and profit) with the deadline relative to the begin time.

    Args:
        contract: the contract, with its deadline in seconds from the submission; None if the job
            has none.
        begin_s: seconds from the submission until the job may start; None for at once.

    Raises:
        UserRequestError: the deadline is not after the begin time.
    """
    if contract is None or begin_s is None:
        return contract
    if contract.deadline_s <= begin_s:
        raise UserRequestError(
            f"deadline: {contract.deadline_s:.0f} s from now is not after the begin time "
            f"(--begin), {begin_s:.0f} s from now",
            field="deadline",
        )
    return replace(contract, deadline_s=contract.deadline_s - begin_s)


def check_comment(text: str) -> None:
    """Check the comment of a job.

    Raises:
        UserRequestError: if it is too long.
    """
    if len(text) > MAX_COMMENT:
        raise UserRequestError(
            f"comment: {len(text)} characters, the limit is {MAX_COMMENT}", field="comment"
        )


def check_notify(receiver: str, events: str) -> str:
    """Return the events and the receiver of a job's messages as one text; empty if there are none.

    Raises:
        UserRequestError: if the receiver or an event is malformed.
    """
    if not receiver:
        if events:
            raise UserRequestError("notify_on: it needs --notify", field="notify_on")
        return ""
    try:
        parse_receiver(receiver)
    except ValueError as error:
        raise UserRequestError(f"notify: {error}", field="notify") from None
    try:
        return f"{','.join(parse_events(events))} {receiver}"
    except ValueError as error:
        raise UserRequestError(f"notify_on: {error}", field="notify_on") from None


async def find_ended(
    dependencies: Iterable[Dependency], status: StatusCache, reader: Reader
) -> dict[JobId, JobState]:
    """Return the final states of those jobs in ``dependencies`` that have already ended.

    Raises:
        UserRequestError: if a job does not exist, or has ended in a state with which the dependency
            can never be met.
    """
    named = {each.job: each for each in dependencies if each.job}
    found: dict[JobId, JobState] = {}
    arrays: dict[JobId, int] = {}
    for job in named:
        entry = status.entry(job)
        if entry is not None:
            found[job], arrays[job] = JobState(entry.info["state"]), entry.info.get("array_job", 0)
    if missing := [job for job in named if job not in found]:
        found |= await reader.in_thread(lambda reader: reader.states(missing))
        arrays |= await reader.in_thread(lambda reader: reader.arrays_of(missing))
    for each in dependencies:
        if not each.job:
            continue
        state = found.get(each.job)
        if state is None or (each.array and arrays.get(each.job) != each.array):
            raise UserRequestError(f"dependency: there is no job {each.title}", field="dependency")
        if _is_impossible(each.kind, state):
            raise UserRequestError(
                f"dependency: {each} can never be met: job {each.title} has ended as {state}",
                kind="refused",
                field="dependency",
            )
    return {job: state for job, state in found.items() if state in FINAL_STATES}


def _is_impossible(kind: DependencyKind, state: JobState) -> bool:
    if kind is DependencyKind.AFTER_OK:
        return state in FINAL_STATES and state is not JobState.COMPLETED
    return kind is DependencyKind.AFTER_NOT_OK and state is JobState.COMPLETED


def check_components(components: Sequence[int], sizes: Sizes) -> None:
    """Check the sizes of a job's components, the parts that may run on different clusters.

    Raises:
        UserRequestError: there are too many, one is empty, or their sum is not the job's size.
    """
    if not components:
        return
    if len(components) > MAX_COMPONENTS:
        raise UserRequestError(
            f"components: {len(components)} components, the limit is {MAX_COMPONENTS}",
            field="components",
        )
    if min(components) < 1:
        raise UserRequestError(
            f"components: {min(components)} processors: a component needs at least 1",
            field="components",
        )
    if not sizes.fixed or sizes.min != sum(components):
        raise UserRequestError(
            f"components: they have {sum(components)} processors, and the job runs on {sizes}: "
            f"give it one size, {sum(components)}",
            field="components",
        )
