"""Workload logs, which are not part of Pliant: find which ones an experiment needs and lacks."""

import os
from pathlib import Path

from pliant.simulator.experiments.definition.definitions import Experiment
from pliant.simulator.experiments.running.tasks import LOGS
from pliant.simulator.inputs import models


def missing_logs(experiment: Experiment) -> list[str]:
    """Return the names of the logs of an experiment that are not in the folder of logs."""
    logs = {
        name
        for cell in experiment.cells
        if "time_shared" not in cell.spec
        and (name := cell.spec.get("workload"))
        and not models.is_model(name)
    }
    places = (Path(), Path(os.environ.get(LOGS, "")))
    return sorted(log for log in logs if not any((place / log).is_file() for place in places))
