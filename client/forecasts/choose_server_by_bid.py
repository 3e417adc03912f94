"""``jobsub --bid``: ask several servers what they would do with a job, and choose the best one."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pliant.client.client_errors import ClientError, NoServerError, RequestError, UsageError
from pliant.client.connection import Connection
from pliant.client.paths import SOCKET
from pliant.client.terminal.durations import format_time
from pliant.client.terminal.tables import table
from pliant.core.values.sizes import parse_sizes
from pliant.core.values.speedup import parse_speedup

#: How the best bid is chosen, `--bid-by`.
CRITERIA = ("end", "price")
#: Seconds that a server has for its answer.
ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Bid:
    """The bid of a server for a job: whether and when it would start the job, and at which price.

    If the server gave no answer, the bid has the reason instead.
    """

    #: As the user named it.
    server: str
    #: The folder of its socket.
    run: str
    #: The answer to ``query``; empty if the server did not answer.
    answer: Mapping[str, Any]
    #: When the job would end, in seconds since the epoch; None if unknown.
    end: float | None = None
    #: Why there is no answer.
    fault: str = ""
    #: Whether there is no server.
    is_absent: bool = False

    @property
    def is_candidate(self) -> bool:
        """Return whether the job can be submitted to the server."""
        return not self.fault and self.answer["accepted"] is not False

    def sort_key(self, criterion: str) -> tuple[bool, float, float]:
        """Return a sorting key by which the best bid is the smallest; unknown values are last.

        Args:
            criterion: ``end`` for the earliest end, ``price`` for the lowest price.
        """
        price, end = self.answer.get("price"), self.end
        if end is None:
            end = self.answer.get("start")
        cost = math.inf if price is None else float(price)
        late = math.inf if end is None else end
        pair = (cost, late) if criterion == "price" else (late, cost)
        return (self.answer["accepted"] is None, *pair)


def parse_servers(text: str) -> list[str]:
    """Return the servers that a list names, each once.

    Raises:
        UsageError: the list is empty.
    """
    servers = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not servers:
        raise UsageError("--bid: name servers by their run folders: --bid /srv/a/run,/srv/b/run")
    return servers


def collect_bids(job: Mapping[str, Any], servers: Sequence[str]) -> list[Bid]:
    """Ask all servers at the same time about a job; return their answers in the servers' order.

    Args:
        job: in the form of a ``submit`` request.
        servers: each the run folder, the state folder, or the socket of a server.
    """
    with ThreadPoolExecutor(len(servers)) as pool:
        return list(pool.map(lambda server: _ask(job, server), servers))


def best_bid(bids: Sequence[Bid], criterion: str) -> Bid | None:
    """Return the best bid; None if no server would accept the job.

    Args:
        bids: the answers of all servers.
        criterion: ``end`` for the earliest end, ``price`` for the lowest price. The other one
            decides between equal bids, and then the order of the servers.
    """
    candidates = [bid for bid in bids if bid.is_candidate]
    return min(candidates, key=lambda bid: bid.sort_key(criterion), default=None)


def no_bid(bids: Sequence[Bid]) -> ClientError:
    """Return the error to raise if none of the servers that were asked would accept the job.

    It is a `NoServerError` if no server answered, otherwise a `ClientError`.
    """
    if all(bid.is_absent for bid in bids):
        return NoServerError("--bid: no server answered")
    return ClientError("--bid: no server would accept the job")


def bids_table(bids: Sequence[Bid], best: Bid | None) -> str:
    """Return the bids as a table with a star at the best bid, if there is a best one."""
    return table(
        ["", "server", "start", "procs", "end", "price", "answer"],
        [_line(bid, bid is best) for bid in bids],
        right=frozenset({"procs", "price"}),
    )


def bid_record(bid: Bid) -> dict[str, Any]:
    """Return the bid of a server for a job as plain data for JSON."""
    answer = {name: value for name, value in bid.answer.items() if name not in {"ok", "now"}}
    return {"server": bid.server, **answer, "end": bid.end, "fault": bid.fault}


def _ask(job: Mapping[str, Any], server: str) -> Bid:
    run = _run_folder(server)
    try:
        with Connection(run, timeout_s=ANSWER_S) as link:
            answer = link.request("query", job=job)
    except NoServerError as error:
        return Bid(server, run, {}, fault=str(error), is_absent=True)
    except RequestError as error:
        return Bid(server, run, {}, fault=str(error))
    return Bid(server, run, answer, _end(job, answer))


def _run_folder(server: str) -> str:
    """Return the run folder of a server, the folder with its socket.

    The user names a server by its run folder, by its state folder, or by its socket.
    """
    path = os.path.expanduser(server)
    if os.path.basename(path) == SOCKET:
        return os.path.dirname(path) or "."
    inside = os.path.join(path, "run")
    return inside if os.path.exists(os.path.join(inside, SOCKET)) else path


def _end(job: Mapping[str, Any], answer: Mapping[str, Any]) -> float | None:
    """Return when the job would end if it kept the size at which it starts.

    The time is in seconds since the epoch; None if it is unknown.
    """
    start, size, estimate_s = answer.get("start"), answer.get("processors"), job["estimate_s"]
    if start is None or not size or estimate_s is None:
        return None
    sizes, speedup = parse_sizes(job["sizes"], job["prefer"]), parse_speedup(job["speedup"])
    requested = sizes.preferred or sizes.min
    return float(start) + float(estimate_s) * speedup(requested) / speedup(size)


def _line(bid: Bid, is_best: bool) -> list[str]:
    answer = bid.answer
    if bid.fault:
        return ["", bid.server, "-", "-", "-", "-", bid.fault]
    now, price = answer["now"], answer.get("price")
    word = {True: "accepts", False: "refuses", None: "does not know"}[answer["accepted"]]
    reason = answer.get("reason")
    return [
        "*" if is_best else "",
        bid.server,
        format_time(answer.get("start"), now),
        str(answer.get("processors") or "-"),
        format_time(bid.end, now),
        "-" if price is None else f"{price:g}",
        f"{word}: {reason}" if reason else word,
    ]
