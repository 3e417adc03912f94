"""Requests of the program for another size: one at a time, with the same state on all processes.

A request is made on every process at the same place of the program, like a collective operation. It
exchanges no message, and the arguments on rank 0 count. Its state changes only when the program
makes another request or cancels it, and at safe points, where rank 0 broadcasts the server's
answer. So the program may branch on the state. Nothing here uses MPI.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from numbers import Real

from pliant.appkit import clock
from pliant.appkit.appkit_errors import RequestError
from pliant.appkit.coordinator.messages import RequestRecord, RequestState
from pliant.appkit.mpi.membership import Membership, MembershipPhase
from pliant.core.model.size_request import RequestAnswer
from pliant.core.support.input_limits import MAX_TEXT
from pliant.core.support.plural import plural
from pliant.core.values.sizes import Sizes, parse_sizes

_NOT_MANAGED = "this program does not run under Pliant: nobody can give or take processors"
_NO_REQUEST = "the job has asked for nothing"


class Request:
    """A request for another number of processors; it is answered at a safe point."""

    def __init__(self, requests: "Requests", asked: RequestRecord | None) -> None:
        """Create the handle that ``job.request`` and ``job.release`` return.

        Args:
            requests: the requests of this process.
            asked: the request; None on a rank that has not joined yet.
        """
        self._requests, self._asked = requests, asked

    @property
    def state(self) -> RequestState:
        """Return the state of the request, which compares equal to its text.

        It is ``pending``, ``granted``, ``granted in part``, ``refused``, ``cancelled`` or
        ``expired``, and the same on all processes between two safe points.
        """
        return self._asked.state if self._asked is not None else RequestState.PENDING

    @property
    def done(self) -> bool:
        """Return whether the request was answered, cancelled or has expired: its state is final."""
        return self.state is not RequestState.PENDING

    @property
    def size(self) -> int:
        """Return how many processes the job had when the server answered; 0 before the answer."""
        return self._asked.size if self._asked is not None else 0

    @property
    def reason(self) -> str:
        """Return why the request was refused or cancelled, or expired; empty without a reason."""
        return self._asked.answer if self._asked is not None else ""

    @property
    def sizes(self) -> str:
        """Return the requested sizes as text, such as "4-16".

        The text is empty on a rank that has not joined.
        """
        return str(self._asked.sizes) if self._asked is not None else ""

    def cancel(self) -> None:
        """Cancel the request if it is pending; call it on all processes at the same place.

        It does nothing if the request has ended or was replaced by a later one. A resize that the
        server has ordered already may still happen.
        """
        self._requests.cancel(self)

    def __repr__(self) -> str:
        return f"<Request {self.sizes or '?'}: {self.state}>"


class Requests:
    """The program's requests for other sizes of the job, as this process knows them.

    Only the latest one can be pending.
    """

    def __init__(
        self,
        membership: Membership,
        sizes: Sizes | None,
        send: Callable[[RequestRecord], None] | None,
    ) -> None:
        """Start without requests.

        Args:
            membership: whether this process has joined the job or left it, and its communicator.
            sizes: sizes that the program can run on; None if it can run on any.
            send: sends a request or its cancellation to the server, if this process is the
                coordinator; None if there is no server.
        """
        self._membership, self._sizes, self._send = membership, sizes, send
        self._waiting: list[Request] = []  # made by this rank before it joined
        #: The last request; None if there was none.
        self.latest: Request | None = None
        #: Whether something has changed that other processes may not know; used on rank 0 only.
        self.has_changed = False

    @property
    def asked(self) -> RequestRecord | None:
        """Return the record of the program's latest request; None if it has made none.

        May be called in any thread.
        """
        return self.latest._asked if self.latest is not None else None

    # ---------------------------------------------------------------- called by the program

    def request(
        self, sizes: int | str, why: str, deadline: float | None, prefer: int | None
    ) -> Request:
        """Request another number of processors; see ``Job.request``."""
        best = None if prefer is None else _number(prefer)
        requested = parse_sizes(sizes if isinstance(sizes, str) else str(_number(sizes)), best)
        both = requested if self._sizes is None else self._sizes.intersect(requested)
        if both is None:
            raise RequestError(f"none of {requested} is one of the program's sizes {self._sizes}")
        _check_why(why)
        until = clock.now() + _seconds(deadline) if deadline is not None else 0.0
        wanted = requested.preferred if requested.preferred in both.values else None
        return self._make(Sizes(both.values, wanted), why, until)

    def release(self, n: int, to: int | None, why: str) -> Request:
        """Offer to release processors; see ``Job.release``."""
        _check_why(why)
        count, target = _number(n), None if to is None else _number(to)
        if count < 1:
            raise RequestError(f"n={count} cannot be given back: write 1 or more")
        size = self._membership.size
        if self._membership.phase is MembershipPhase.JOINING:
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
        if self._membership.phase is MembershipPhase.JOINING:
            request = Request(self, None)
            self._waiting.append(request)
            return request
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
        """Cancel a request, if it is the latest one and pending."""
        self._membership.check()
        if request is self.latest and self._end_pending("by the program"):
            asked = self.asked
            assert asked is not None
            self._changed(asked)

    def _end_pending(self, reason: str) -> bool:
        """Cancel the latest request if it is pending, and return whether it was pending.

        ``reason`` is the text that the program can read as the reason of the cancellation.
        """
        asked = self.asked
        if self.latest is None or asked is None or asked.state is not RequestState.PENDING:
            return False
        self.latest._asked = replace(asked, state=RequestState.CANCELLED, answer=reason)
        return True

    def _changed(self, asked: RequestRecord) -> None:
        self.has_changed = True
        if self._send is not None:
            self._send(asked)

    # ---------------------------------------------------------------- at safe points

    def receive_answer(self, answer: RequestAnswer | None) -> None:
        """Apply the server's answer to the program's latest request; called on rank 0.

        An answer to an earlier request, or None, changes nothing.
        """
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
        """Replace the latest request of this process by ``asked``, the latest request of rank 0.

        A joining rank may have called ``job.request`` before it joined. The objects that it got
        then show the request of rank 0, or the state CANCELLED if there is none.
        """
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
    """Check a number of processors that the program gave, and return it as an ``int``.

    Raises:
        RequestError: the value is not a whole number.
    """
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]  # refused values are reported below
        except TypeError:
            pass
    raise RequestError(
        f"{value!r} is no number of processors: write a whole number or, of sizes, "
        "a text like '4-16'"
    )


def _seconds(value: object) -> float:
    """Check a number of seconds that the program gave, and return it as a ``float``.

    Raises:
        RequestError: the value is not a positive number.
    """
    try:
        seconds = float(value) if isinstance(value, Real) else 0.0
    except OverflowError:
        seconds = math.inf
    if 0 < seconds < math.inf:
        return seconds
    raise RequestError(f"deadline={value!r}: write seconds from now, more than 0")


def _check_why(why: object) -> None:
    if not isinstance(why, str) or len(why) > MAX_TEXT:
        raise RequestError(f"why: expected a text of at most {MAX_TEXT} characters")
