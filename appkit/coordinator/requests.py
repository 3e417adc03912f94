"""What the application asks for itself: other sizes, one request at a time, alike everywhere.

A request is made on every process at the same place of the program, as a collective operation
would be; it exchanges no message, and what rank 0 says counts. Its state changes where the program
itself says so (another request, a cancellation) and at safe points, where rank 0 tells all what the
server answered: a program may branch on it. Nothing here uses MPI.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from numbers import Real

from pliant.appkit import clock
from pliant.appkit.coordinator.messages import RequestRecord, RequestState
from pliant.appkit.errors import RequestError
from pliant.appkit.mpi.membership import Membership, Phase
from pliant.core.model.size_request import RequestAnswer
from pliant.core.support.plural import plural
from pliant.core.values.sizes import Sizes, parse_sizes

#: Characters of ``why``; the server takes no more.
MAX_WHY_LENGTH = 1000
_NOT_MANAGED = "this program does not run under Pliant: nobody can give or take processors"
_NO_REQUEST = "the job has asked for nothing"


class Request:
    """A request for another number of processors. The answer comes with a safe point."""

    def __init__(self, requests: "Requests", asked: RequestRecord | None) -> None:
        """Made by ``job.request`` and ``job.release``; None: a newcomer's, not yet known."""
        self._requests, self._asked = requests, asked

    @property
    def state(self) -> RequestState:
        """``pending``, ``granted``, ``granted in part``, ``refused``, ``cancelled``, ``expired``.

        It equals that text, and is the same on all processes between two safe points.
        """
        return self._asked.state if self._asked is not None else RequestState.PENDING

    @property
    def done(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state is not RequestState.PENDING

    @property
    def size(self) -> int:
        """Processes that the job had when it was answered; 0: it was not answered."""
        return self._asked.size if self._asked is not None else 0

    @property
    def reason(self) -> str:
        """Why it was refused or ended; empty: nothing to say."""
        return self._asked.answer if self._asked is not None else ""

    @property
    def sizes(self) -> str:
        """The totals that were asked for, in the size grammar; empty: not known yet."""
        return str(self._asked.sizes) if self._asked is not None else ""

    def cancel(self) -> None:
        """Take it back, if it is pending; call it where it was made, on all processes alike.

        It does nothing to one that is done, or whose place a later one took. A resize for it that
        has its GO already may still happen.
        """
        self._requests.cancel(self)

    def __repr__(self) -> str:
        return f"<Request {self.sizes or '?'}: {self.state}>"


class Requests:
    """The requests of a job as this process knows them; the latest one is all that counts."""

    def __init__(
        self,
        membership: Membership,
        sizes: Sizes | None,
        send: Callable[[RequestRecord], None] | None,
    ) -> None:
        """Begin without any.

        Args:
            membership: of this process.
            sizes: what the program can run on; None: any.
            send: brings a request or its end to the server, if this process is the coordinator;
                None: there is no server.
        """
        self._membership, self._sizes, self._send = membership, sizes, send
        self._waiting: list[Request] = []  # made by this newcomer before it joined
        #: The request that was made last.
        self.latest: Request | None = None
        #: Something changed that the others may not know; looked at by rank 0 at safe points.
        self.has_changed = False

    @property
    def asked(self) -> RequestRecord | None:
        """The latest request as a value; may be read by any thread."""
        return self.latest._asked if self.latest is not None else None

    # ---------------------------------------------------------------- what programs say

    def request(
        self, sizes: int | str, why: str, deadline: float | None, prefer: int | None
    ) -> Request:
        """Ask for one of these totals; see ``Job.request``."""
        best = None if prefer is None else _number(prefer)
        wish = parse_sizes(sizes if isinstance(sizes, str) else str(_number(sizes)), best)
        both = wish if self._sizes is None else self._sizes.intersect(wish)
        if both is None:
            raise RequestError(f"none of {wish} is one of the program's sizes {self._sizes}")
        _check_why(why)
        until = clock.now() + _seconds(deadline) if deadline is not None else 0.0
        wanted = wish.preferred if wish.preferred in both.values else None
        return self._make(Sizes(both.values, wanted), why, until)

    def release(self, n: int, to: int | None, why: str) -> Request:
        """Give processors back; see ``Job.release``."""
        _check_why(why)
        count, target = _number(n), None if to is None else _number(to)
        if count < 1:
            raise RequestError(f"n={count} cannot be given back: write 1 or more")
        size = self._membership.size
        if self._membership.phase is Phase.JOINING:
            return self._make(Sizes((1,)), why, 0.0)
        if target is None:
            target = (
                size - count if self._sizes is None else self._sizes.largest_at_most(size - count)
            )
        elif self._sizes is not None and target not in self._sizes:
            raise RequestError(f"{target} is not one of the program's sizes {self._sizes}")
        if not 1 <= target < size:
            allowed = f", its sizes are {self._sizes}" if self._sizes is not None else ""
            what = f"go down to {to}" if to is not None else f"give back {count}"
            raise RequestError(
                f"the job has {plural(size, 'processor')} and cannot {what}{allowed}"
            )
        return self._make(Sizes((target,)), why, 0.0)

    def _make(self, sizes: Sizes, why: str, until: float) -> Request:
        if self._membership.phase is Phase.JOINING:
            newcomers = Request(self, None)
            self._waiting.append(newcomers)
            return newcomers
        self._membership.check()
        before = self.asked
        number = before.number + 1 if before is not None else 1
        self._end_pending(f"request {number} took its place")
        asked = RequestRecord(number, sizes, why, until)
        if self._send is None:
            asked = replace(asked, state=RequestState.REFUSED, answer=_NOT_MANAGED, heard=True)
        self.latest = Request(self, asked)
        self._changed(asked)
        return self.latest

    def cancel(self, request: Request) -> None:
        """The program has no use for a request any more."""
        self._membership.check()
        if request is self.latest and self._end_pending("by the program"):
            asked = self.asked
            assert asked is not None
            self._changed(asked)

    def _end_pending(self, reason: str) -> bool:
        """Let the latest request be cancelled, if it is pending; whether it was."""
        asked = self.asked
        if self.latest is None or asked is None or asked.state is not RequestState.PENDING:
            return False
        self.latest._asked = replace(asked, state=RequestState.CANCELLED, answer=reason)
        return True

    def _changed(self, asked: RequestRecord) -> None:
        self.has_changed = True
        if self._send is not None:
            self._send(asked)

    # ---------------------------------------------------------------- what rank 0 tells

    def receive_answer(self, answer: RequestAnswer | None) -> None:
        """Take over what the server answered; on rank 0, at a safe point."""
        asked = self.asked
        if answer is None or asked is None or answer.number != asked.number or asked.heard:
            return
        assert self.latest is not None
        if asked.state is RequestState.PENDING:
            asked = replace(
                asked,
                state=RequestState(answer.outcome.value),
                size=answer.size,
                answer=answer.reason,
            )
        self.latest._asked = replace(asked, heard=True)
        self.has_changed = True

    def adopt(self, asked: RequestRecord | None) -> None:
        """Take over what rank 0 knows; a newcomer's own requests are the latest from now on."""
        self.has_changed = False
        if asked is not None:
            if self.latest is None or self.asked is None or asked.number != self.asked.number:
                self._end_pending(f"request {asked.number} took its place")
                self.latest = Request(self, asked)
            self.latest._asked = asked
        for request in self._waiting:
            request._asked = asked or RequestRecord(
                0, Sizes((1,)), "", 0.0, RequestState.CANCELLED, answer=_NO_REQUEST, heard=True
            )
        if self._waiting and asked is not None:
            self.latest = self._waiting[-1]
        self._waiting.clear()


def _number(value: object) -> int:
    """A whole number that a program gave.

    Raises:
        RequestError: it is none.
    """
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]  # what it refuses is told below
        except TypeError:
            pass
    raise RequestError(
        f"{value!r} is no number of processors: write a whole number or, of sizes, "
        "a text like '4-16'"
    )


def _seconds(value: object) -> float:
    """A time from now that a program gave.

    Raises:
        RequestError: it is none.
    """
    try:
        seconds = float(value) if isinstance(value, Real) else 0.0
    except OverflowError:
        seconds = math.inf
    if 0 < seconds < math.inf:
        return seconds
    raise RequestError(f"deadline={value!r}: write seconds from now, more than 0")


def _check_why(why: object) -> None:
    if not isinstance(why, str) or len(why) > MAX_WHY_LENGTH:
        raise RequestError(f"why: expected a text of at most {MAX_WHY_LENGTH} characters")
