"""Ask a child process to simulate the queue of the server under several strategies.

The simulation runs as a process of the user, with low priority. The server only hands out a copy of
its queue.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pliant.client.client_errors import ClientError

#: A strategy and its options.
Chosen = tuple[str, Mapping[str, object]]
#: The simulator must not take processors from jobs on this host.
_NICE = 10


def simulate_queue(
    snapshot: Mapping[str, Any], strategies: Sequence[Chosen], assume_s: float
) -> dict[str, Any]:
    """Simulate a queue under each strategy and return the outcomes.

    Args:
        snapshot: the answer of the server to ``snapshot``.
        strategies: the strategies to simulate.
        assume_s: run time of jobs that state neither an estimate nor a limit, in seconds.

    Returns:
        The answer of ``pliant.simulator.what_if``: ``outcomes`` in the order of the strategies, and
        the jobs that were left out.

    Raises:
        ClientError: a strategy is unknown, or cannot run these jobs; the text says why.
    """
    question = {"snapshot": snapshot, "strategies": list(strategies), "assume_s": assume_s}
    command = ["nice", "-n", str(_NICE), sys.executable, "-P", "-m", "pliant.simulator.what_if"]
    done = subprocess.run(
        command, input=json.dumps(question), capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise ClientError(lines[-1] if lines else f"the simulation ended with {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
