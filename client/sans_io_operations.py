"""Operations as sequences of steps, which do not depend on how a client waits for answers.

An operation is a generator. It yields its next step: a request (`Ask`), a pause (`Pause`) or a call
that may block (`Call`). It gets the answer to the step, or the error of the client, and returns its
result. `run` takes the steps one after the other in this thread; `pliant.client.api.async_client`
takes the same steps in an event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

from pliant.client.client_errors import ClientError
from pliant.client.connection import Connection

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any, TypeVar

    Result = TypeVar("Result")
    Steps = Generator["Step", Any, Result]


class Ask:
    """A step of an operation: send a request to the server, and pass its answer back."""

    __match_args__ = ("op", "fields", "limit_s")

    def __init__(self, op: str, fields: dict[str, Any], limit_s: float | None = None) -> None:
        """Describe a request.

        Args:
            op: the operation.
            fields: the other fields of the request.
            limit_s: seconds to wait for the answer. ``UNLIMITED`` means no limit, None the limit of
                the connection.
        """
        self.op, self.fields, self.limit_s = op, fields, limit_s


class Pause:
    """A step of an operation: wait for some seconds."""

    __match_args__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Call:
    """A step of an operation: call a function that may block, and pass its result back."""

    __match_args__ = ("function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function


Step = Ask | Pause | Call


def run(
    link: Connection, steps: Steps[Result], *, sleep: Callable[[float], None] = time.sleep
) -> Result:
    """Carry out all steps of an operation, and return its result.

    Raises:
        ClientError: a step has failed, and the operation could not continue.
    """
    try:
        step = next(steps)
        while True:
            try:
                answer = _take(link, step, sleep)
            except ClientError as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        steps.close()


def _take(link: Connection, step: Step, sleep: Callable[[float], None]) -> Any:
    match step:
        case Ask(op, fields, limit_s):
            return link.request(op, limit_s=limit_s, **fields)
        case Call(function):
            return function()
        case Pause(seconds):
            return sleep(seconds)
