"""The process that reads tasks from stdin and writes their results to stdout, as lines of JSON.

Each task runs in a fork of this process, so that runs share nothing but the imported modules.
Importing these modules takes longer than many runs.
"""

import json
import os
import sys
import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from pliant.simulator.experiments.running.tasks import run_task
from pliant.simulator.inputs.simulation_errors import SimulationError


def main() -> int:
    """Read tasks from stdin, one in each line, and run them, until stdin is closed; return 0."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _write(answer(json.loads(line)))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != 0:
            _write({"error": f"a run ended with {code}"})
    return 0


def answer(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run a task; return its metrics with the key ``metrics``, or a text with the key ``error``."""
    try:
        with redirect_stdout(sys.stderr):  # Output of a strategy does not belong to the result.
            return {"metrics": run_task(task["spec"], task["seed"])}
    except (SimulationError, ValueError) as error:
        # All errors in the inputs are of these types.
        return {"error": f"{task['spec'].get('workload')}, seed {task['seed']}: {error}"}
    except BaseException:
        return {"error": traceback.format_exc()}


def _write(found: Mapping[str, Any]) -> None:
    try:
        print(json.dumps(found), flush=True)
    except BrokenPipeError:  # The command that started this process was killed.
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
