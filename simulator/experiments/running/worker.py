"""The process of one run: reads a task as JSON and writes the metrics as JSON."""

import json
import sys
from contextlib import redirect_stdout

from pliant.simulator.experiments.running.tasks import run_task
from pliant.simulator.inputs.simulation_errors import SimulationError


def main() -> int:
    """Run the task on stdin and print its metrics; return the exit code."""
    task = json.load(sys.stdin)
    try:
        with redirect_stdout(sys.stderr):  # Output of a strategy does not belong to the result.
            measured = run_task(task["spec"], task["seed"])
    except (SimulationError, ValueError) as error:
        # All errors in the inputs are of these types.
        print(f"{task['spec'].get('workload')}, seed {task['seed']}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    json.dump(measured, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
