"""The values of a job that all users see; others are for its owner and for operators.

A value that is not listed here is hidden, so that a new one is private until somebody decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What everybody may see: whose job it is, what it waits for, and what it takes of the cluster.
PUBLIC = frozenset(
    {
        "id",
        "name",
        "user",
        "class",
        "type",
        "state",
        "reason_code",
        "processors",
        "held",
        "size",
        "procs",
        "reserved",
        "donors",
        "nodes",
        "sizes",
        "prefer",
        "time_limit_s",
        "limit_end",
        "estimate_s",
        "priority",
        "submit",
        "start",
        "end",
        "run",
        "epoch",
        "resources",
        "array",
        "array_job",
        "array_task",
        "tasks",
    }
)


#: The same for a job that waits.
_PUBLIC_WAITING = PUBLIC | {"reason"}


def without_private(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a job's values in which those that only the owner may see are blank.

    A private text becomes an empty text, and any other private value becomes None. The reason of a
    job is public while the job waits, because the server then composes it from a reason code. The
    reasons of other jobs may quote the program, so they are private.
    """
    public = _PUBLIC_WAITING if info.get("reason_code") else PUBLIC
    return {
        key: value if key in public else ("" if isinstance(value, str) else None)
        for key, value in info.items()
    }
