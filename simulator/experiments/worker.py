"""The process of one run: a task in JSON comes in, what was measured goes out."""

import json
import sys
from contextlib import redirect_stdout

from pliant.simulator.experiments.tasks import run_task
from pliant.simulator.inputs.errors import SimulationError


def main() -> int:
    """Run one task."""
    task = json.load(sys.stdin)
    try:
        with redirect_stdout(sys.stderr):  # what a strategy prints is none of the results
            measured = run_task(task["spec"], task["seed"], task["metrics"])
    except (SimulationError, ValueError) as error:
        # Every error of an input is one of these.
        print(f"{task['spec'].get('workload')}, seed {task['seed']}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    json.dump(measured, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
