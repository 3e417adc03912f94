"""Why jobs wait, as a code with parameters. The sentence is made when someone reads it.

Each pass of a strategy states for every waiting job why it waits. With thousands of jobs, nearly
all of these reasons are the same as before. So reasons are compared as data, only changes are
stored, and no sentence is made for a job that nobody looks at. Numbers that change with each pass
are kept apart (``live``). They are shown to users of the running server, and never count as a
change.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from pliant.core.support.plural import plural


class WaitCode(StrEnum):
    """What a job waits for. The codes are stored, so a code never gets another meaning."""

    #: Fewer processors than its smallest size are within reach. Live: ``reach``, how many are.
    PROCESSORS = "processors"
    #: Jobs before it in the queue.
    QUEUE = "queue"
    #: No part of the machine that it may run in is large enough: ``most`` processors, ``whose``.
    TOO_WIDE = "too_wide"
    #: Growth of running jobs comes before it.
    GROWTH = "growth"
    #: A job that others have gone ahead of as often as is allowed.
    PASSED_OVER = "passed_over"
    #: Its start would cost other jobs profit.
    PROFIT = "profit"
    #: Starts and resizes that are under way; its deadline cannot be promised before (``why``).
    UNSETTLED = "unsettled"
    #: It is accepted, and starts at the end of the lookahead ``job``.
    LOOKAHEAD = "lookahead"
    #: It gets its processors from jobs that are being suspended for it, or that are ending.
    SUSPENDING = "suspending"
    #: Too little of a named resource (``name``) is free, or earlier jobs wait for it: ``amount``.
    RESOURCE = "resource"
    #: Its user (``user``) may have no more processors at once: ``limit`` of them.
    USER_LIMIT = "user_limit"
    #: Too few processors of nodes that fit it are within reach (``needs``: what it needs of them).
    #: Live: ``reach``, how many are.
    NODES = "nodes"
    #: Other jobs have to start or to end first (``what``).
    DEPENDENCY = "dependency"
    #: It may not start before its begin time: ``when``, as text.
    BEGIN = "begin"


Value = int | float | str


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why a job waits: a code, its parameters, and numbers that hold only now (``live``).

    Comparisons ignore ``live``.
    """

    code: WaitCode
    #: By name, in a fixed order. Every code may have ``policy``: the queue order in force.
    parameters: tuple[tuple[str, Value], ...] = ()
    #: Numbers that hold only at this moment, by name.
    live: tuple[tuple[str, Value], ...] = field(default=(), compare=False)

    def sentence(self, least: int, *, now: bool = False) -> str:
        """Return the reason as a sentence.

        Args:
            least: the smallest size of the job, in processors.
            now: whether to add the numbers that hold only now, such as available processors. Only
                the server that made the reason has them.
        """
        values = {**dict(self.parameters), **(dict(self.live) if now else {})}
        available = f" (available to it now: {values['reach']})" if "reach" in values else ""
        text = _SENTENCES[self.code].format(
            needed=plural(least, "processor"), available=available, **values
        )
        policy = values.get("policy")
        return f"{text} (under the present policy, {policy})" if policy else text


_SENTENCES = {
    WaitCode.PROCESSORS: "waits for at least {needed}{available}",
    WaitCode.QUEUE: "waits for jobs before it",
    WaitCode.TOO_WIDE: "needs {needed}, the {whose} has {most}",
    WaitCode.GROWTH: "waits until running jobs have grown as far as they can",
    WaitCode.PASSED_OVER: "waits for a job that may not be passed over any more",
    WaitCode.PROFIT: "waits until it costs no other job's profit",
    WaitCode.UNSETTLED: "waits for others to start or to change size ({why} now)",
    WaitCode.LOOKAHEAD: "accepted; starts when job {job} ends",
    WaitCode.SUSPENDING: "waits for at least {needed}; jobs that are leaving free enough for it",
    WaitCode.RESOURCE: "waits for {amount} of resource {name}",
    WaitCode.USER_LIMIT: "waits for other jobs of {user}, who may use {limit} processors at once",
    WaitCode.NODES: "waits for at least {needed} of nodes that fit it ({needs}){available}",
    WaitCode.DEPENDENCY: "waits for {what}",
    WaitCode.BEGIN: "begins at {when}",
}
#: Parameters without which a sentence cannot be made.
_REQUIRED = {
    WaitCode.TOO_WIDE: ("whose", "most"),
    WaitCode.UNSETTLED: ("why",),
    WaitCode.LOOKAHEAD: ("job",),
    WaitCode.RESOURCE: ("name", "amount"),
    WaitCode.USER_LIMIT: ("user", "limit"),
    WaitCode.NODES: ("needs",),
    WaitCode.DEPENDENCY: ("what",),
    WaitCode.BEGIN: ("when",),
}
_CODES = {code.value: code for code in WaitCode}

#: What a strategy may state: a reason, or a text of its own.
Reason = WaitReason | str


def sentence(reason: Reason, least: int, *, now: bool = False) -> str:
    """Return the text of a reason. A strategy's own text is returned as it is.

    The other arguments are those of `WaitReason.sentence`.
    """
    return reason if isinstance(reason, str) else reason.sentence(least, now=now)


def to_record(reason: WaitReason) -> list[object]:
    """Return a reason as lists, texts and numbers, which can be stored as JSON."""
    return [reason.code.value, [list(pair) for pair in reason.parameters]]


def from_record(record: object) -> WaitReason | None:
    """Return the reason that a record describes; None if it is missing or has an unknown code."""
    match record:
        case [str() as name, [*pairs]]:
            found = tuple(_pair(pair) for pair in pairs)
            code = _CODES.get(name)
            if code is not None and missing_parameters(code, found) == ():
                return WaitReason(code, found)
    return None


def _pair(pair: object) -> tuple[str, Value]:
    match pair:
        case [str() as name, int() | float() | str() as value]:
            return name, value
    return "", ""


def missing_parameters(code: WaitCode, parameters: Iterable[tuple[str, Value]]) -> tuple[str, ...]:
    """Return the names of parameters that are missing for the sentence of this code."""
    given = {name for name, _ in parameters}
    return tuple(name for name in _REQUIRED.get(code, ()) if name not in given)
