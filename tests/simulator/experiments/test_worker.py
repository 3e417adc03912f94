"""The process that simulates tasks, when the command that started it is gone."""

import subprocess
import sys

WORKER = "pliant.simulator.experiments.running.worker"


def test_a_worker_whose_command_was_killed_ends_without_a_traceback() -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    worker.stdout.close()
    worker.stdout = None
    _, said = worker.communicate('{"spec": {"workload": "none"}, "seed": 1}\n', timeout=60)
    assert (worker.returncode, said) == (1, "")
