"""Read a snapshot and strategies as JSON, simulate each, and write the outcomes as JSON."""

import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from pliant.simulator.inputs.simulation_errors import SimulationError
from pliant.simulator.run.simulate import simulate
from pliant.simulator.what_if.outcomes import outcome
from pliant.simulator.what_if.server_snapshot import read_snapshot
from pliant.strategies import UnknownStrategyError
from pliant.strategies.interface.options import OptionError


def main() -> int:
    """Simulate the question on stdin and print the outcomes; return the exit code.

    The question is the JSON object that `simulate_all` takes. The exit code is 1 after an error,
    which is printed on stderr.
    """
    question = json.load(sys.stdin)
    try:
        with redirect_stdout(sys.stderr):  # output of a strategy does not belong to the answer
            answer = simulate_all(question)
    except (SimulationError, OptionError, UnknownStrategyError, ValueError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    json.dump(answer, sys.stdout)
    return 0


def simulate_all(question: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate a snapshot under several strategies.

    Args:
        question: ``snapshot`` (the answer of the server), ``strategies`` (pairs of name and
            options) and ``assume_s`` (the run time of jobs that state none, in seconds).

    Returns:
        ``outcomes`` in the order of the strategies (`outcome`), and three lists of job numbers.
        ``assumed``: their run time is ``assume_s``. ``too_wide``: left out, because the usable
        nodes cannot hold them. ``on_other_nodes``: left out, because they run on unusable nodes.

    Raises:
        SimulationError: a strategy cannot run these jobs.
        OptionError, UnknownStrategyError: a strategy or one of its options is not known.
    """
    snapshot = question["snapshot"]
    found = read_snapshot(snapshot, question["assume_s"])
    rows = [row for row in snapshot["jobs"] if row["id"] in found.running]
    starts = {row["id"]: row["start"] - snapshot["now"] for row in rows}
    outcomes = []
    for name, options in question["strategies"]:
        settings = found.settings(name, options)
        outcomes.append(outcome(simulate(found.jobs, settings), settings, starts))
    return {
        "outcomes": outcomes,
        "assumed": found.assumed,
        "too_wide": found.too_wide,
        "on_other_nodes": found.on_other_nodes,
    }


if __name__ == "__main__":
    sys.exit(main())
