"""Check the values of options of a job before the server is asked.

The grammars are those of `pliant.core`. They are imported when an option is used, so that
submitting a plain job stays fast.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from pliant.client.client_errors import UsageError

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any

#: A number without a unit.
_BARE = r"(?a)\d+(\.\d+)?"

TYPES = ("mpi", "uni", "script")

OPEN_MODES = ("append", "truncate")

GROW_IF = ("gain", "always")

BIND = ("rank", "node", "none")


def check_sizes(text: str, prefer: int | None) -> None:
    """Check the notation of a job's sizes, such as ``1-8:pow2``, and the preferred size.

    Raises:
        UsageError: a size is malformed; the text says how to write it.
    """
    if text.isascii() and text.isdigit() and 0 < len(text) < 6 and int(text) > 0 and prefer is None:
        return  # the usual case needs no grammar
    from pliant.core.values.sizes import SizesError, parse_sizes

    try:
        parse_sizes(text, prefer)
    except SizesError as error:
        raise UsageError(str(error)) from None


def check_speedup(text: str) -> str:
    """Check a speedup model, and return it.

    Raises:
        UsageError: the model is malformed; the text says how to write it.
    """
    if text != "linear":  # the usual case needs no grammar
        from pliant.core.values.speedup import SpeedupError, parse_speedup

        try:
            parse_speedup(text)
        except SpeedupError as error:
            raise UsageError(str(error)) from None
    return text


def check_resources(texts: Sequence[str]) -> list[str]:
    """Check the named resources that a job needs; return them as the server expects them.

    Raises:
        UsageError: a resource is malformed; the text says how to write it.
    """
    if not texts:
        return []  # the usual case imports nothing
    from pliant.core.values.resources import parse_needs

    try:
        return [str(need) for need in parse_needs(texts)]
    except ValueError as error:
        raise UsageError(f"resource: {error}") from None


def check_policy(text: str) -> str:
    """Return the value of ``--when-cut-off`` as the server expects it, with its time in seconds.

    The policy says what happens to the job's processes on a node that has lost the server. A time
    may have units; a bare number is in seconds.

    Raises:
        UsageError: the text is no policy.
    """
    if text == "keep":
        return text  # the usual case imports nothing
    from pliant.client.terminal.durations import parse_span
    from pliant.core.values.lost_contact_policy import isolation_policy, parse_isolation_policy

    name, equals, time = text.partition("=")
    bare = not equals or re.fullmatch(_BARE, time) or time != time.strip()
    try:
        policy = text if bare else f"{name}={parse_span(time):.15g}"
        return isolation_policy(parse_isolation_policy(policy))
    except ValueError:
        raise UsageError(
            f"when-cut-off: {text!r} is no policy; write keep, or stop-after=TIME, ten years at "
            "most, as in stop-after=30 (seconds), stop-after=5m or stop-after=1h30m"
        ) from None


def check_choices(open_mode: str, grow_if: str | None, bind: str) -> str:
    """Check options that have a fixed list of values.

    Returns:
        The value of ``bind`` as the server expects it: empty for the default.

    Raises:
        UsageError: an option has another value.
    """
    _check_choice("open_mode", open_mode, OPEN_MODES)
    _check_choice("grow_if", grow_if, (None, *GROW_IF))
    _check_choice("bind", bind, BIND)
    return "" if bind == "rank" else bind


def check_record_load(interval_s: float | None) -> dict[str, float]:
    """Return the request's field for a record of the job's load; empty if none is wanted.

    Raises:
        UsageError: the interval is out of bounds.
    """
    if interval_s is None:
        return {}
    from pliant.core.support.input_limits import MAX_LOAD_INTERVAL_S, MIN_LOAD_INTERVAL_S

    if not MIN_LOAD_INTERVAL_S <= interval_s <= MAX_LOAD_INTERVAL_S:
        raise UsageError(
            f"--record-load: {interval_s:g} s is out of bounds; expected 10 ms to 60 s"
        )
    return {"record_load_s": interval_s}


def _check_choice(name: str, value: str | None, choices: Sequence[str | None]) -> None:
    if value not in choices:
        known = " or ".join(filter(None, choices))
        raise UsageError(f"{name}: {value!r} is unknown; write {known}")


def check_node_needs(
    mem_per_cpu: str | int,
    gpus: int,
    gres: Sequence[str],
    constraint: str,
    nodelist: str,
    exclude: str,
) -> dict[str, Any]:
    """Return the request's fields for memory, devices and nodes that a job needs.

    The result is empty if the job needs none of these.

    Raises:
        UsageError: a text is malformed; the message names the option.
    """
    if not (mem_per_cpu or gpus or gres or constraint or nodelist or exclude):
        return {}  # the usual case imports nothing
    from pliant.core.values.node_needs import GPU, parse_gres, parse_memory
    from pliant.core.values.node_property_constraint import Constraint
    from pliant.core.values.node_ranges import parse_node_ranges

    option = "--gres"
    try:
        amounts = parse_gres(gres)
        if gpus:
            if GPU in amounts:
                raise ValueError(f"--gpus {gpus} asks for {GPU}, too; name them once")
            amounts[GPU] = gpus
        option = "--mem-per-cpu"
        memory = mem_per_cpu if isinstance(mem_per_cpu, int) else 0
        if mem_per_cpu and not memory:
            memory = parse_memory(str(mem_per_cpu))
        option = "--constraint"
        if constraint:
            Constraint(constraint)
        option = "--nodelist"
        if nodelist:
            parse_node_ranges(nodelist)
        option = "--exclude"
        if exclude:
            parse_node_ranges(exclude)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    fields = {
        "memory_bytes": memory,
        "gres": amounts,
        "constraint": constraint,
        "nodelist": nodelist,
        "exclude": exclude,
    }
    # Not sent if empty, so that older servers take the job.
    return {name: value for name, value in fields.items() if value}


def check_contract(
    deadline_s: float | None, deadline_at: float | None, profit: str
) -> dict[str, Any]:
    """Check a deadline and its profit; return the request's fields, empty without a deadline.

    Args:
        deadline_s: the deadline in seconds from now, or None.
        deadline_at: the deadline in seconds since the epoch, or None.
        profit: a number or a profit function, as text; empty for the default.

    Raises:
        UsageError: there is a profit without a deadline, or the profit is malformed.
    """
    if deadline_s is None and deadline_at is None:
        if profit:
            raise UsageError(f"--profit {profit} needs a deadline: add --deadline, as in 2h")
        return {}
    from pliant.core.values.profit_contract import parse_profit

    try:
        parse_profit(profit, 1.0)
    except ValueError as error:
        raise UsageError(f"--profit {error}") from None
    fields = {"deadline_s": deadline_s, "deadline_at": deadline_at, "profit": profit}
    return {name: value for name, value in fields.items() if value not in {None, ""}}


def policy_argument(text: str) -> str:
    """Check a value of ``--when-cut-off`` and return it; a type for argparse."""
    try:
        return check_policy(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None


def speedup_argument(text: str) -> str:
    """Check a value of ``--speedup`` and return it; a type for argparse."""
    try:
        return check_speedup(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
