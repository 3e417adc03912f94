"""The job of ``jobsub --what-if``: added to a simulated copy of the queue, and not submitted."""

from __future__ import annotations

import getpass
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pliant.client.client_errors import UsageError
from pliant.core.values.profit_contract import parse_profit
from pliant.core.values.sizes import SizesError, parse_sizes

#: The number of a job that has none.
NUMBER = 0


def job_row(job: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return a job as a row of the server's ``snapshot``.

    Args:
        job: in the form of a ``submit`` request.
        now: the time of the snapshot, seconds since the epoch.

    Raises:
        UsageError: the job needs memory, devices, certain nodes or another job, which are not
            simulated.
    """
    for name in ("memory_bytes", "gres", "constraint", "nodelist", "exclude", "dependency"):
        if job.get(name):
            raise UsageError(f"--what-if cannot simulate a job with {name.replace('_', ' ')}")
    try:
        sizes = parse_sizes(job["sizes"], job["prefer"])
    except SizesError as error:
        raise UsageError(str(error)) from None
    arrival = now + (job.get("begin_s") or 0.0)
    arrival = max(arrival, job.get("begin_at") or -math.inf)
    return {
        "id": NUMBER,
        "name": job["name"],
        "user": getpass.getuser(),
        "account": job.get("account", ""),
        "arrival": arrival,
        "sizes": str(sizes),
        "prefer": sizes.preferred,
        "requested": sizes.preferred or sizes.min,
        "estimate_s": job["estimate_s"],
        "limit_s": job["time_limit_s"],
        "speedup": job["speedup"],
        "measured": {},
        "contract": _contract(job, now, arrival),
        "priority": job.get("priority", 0),
        "node_needs": None,
        "start": None,
        "ranks": [],
        "malleable": False,
        "done": 0.0,
    }


def _contract(job: Mapping[str, Any], now: float, arrival: float) -> dict[str, Any] | None:
    deadline_s = job.get("deadline_s")
    if job.get("deadline_at") is not None:
        deadline_s = job["deadline_at"] - now
    if deadline_s is None:
        return None
    return asdict(parse_profit(job.get("profit", ""), max(0.0, deadline_s - (arrival - now))))
