"""Runs of experiments on several clusters that have users of their own."""

from collections.abc import Mapping
from typing import Any

from pliant.simulator.experiments.definition.definitions import ExperimentError
from pliant.simulator.inputs.settings import Cluster, parse_clusters
from pliant.simulator.inputs.workload import Workload
from pliant.simulator.multicluster.grid_jobs import GridJob
from pliant.simulator.multicluster.settings import Latencies, LocalUsers, MulticlusterSettings
from pliant.simulator.multicluster.simulate_clusters import simulate_clusters
from pliant.strategies.policies.koala_precedence import Limits

_PLAIN = ("policy", "precedence", "max_tries", "poll_s", "snapshot_s", "lead_s", "reservations")
_LIMITS = ("threshold", "initial", "cap", "placement")
_LATENCIES = tuple(Latencies.__dataclass_fields__)
_LOCAL = {"local_load": "load", "local_run_s": "run_s", "local_largest": "largest"}
#: The words that these keys may have.
_WORDS = {
    "policy": ("fpsma", "egs"),
    "precedence": ("pra", "pwa"),
    "placement": ("wf", "cf", "cm", "fcm"),
    "initial": ("lo", "max", "preferred"),
}


def run_multicluster(given: Mapping[str, Any], workload: Workload, seed: int) -> dict[str, float]:
    """Run one simulation of several clusters and return all of its metrics.

    Args:
        given: the value of the run's key ``multicluster``.
        workload: the jobs, each with one component.
        seed: the seed of the random background load of local users and of the random latencies.

    Raises:
        ExperimentError: a key, or a name given as a value, is not known.
        SettingsError: a value is invalid.
    """
    settings = read_settings(given, seed)
    result = simulate_clusters([GridJob(job) for job in workload.jobs], settings)
    return dict(result.metrics)


def read_settings(given: Mapping[str, Any], seed: int) -> MulticlusterSettings:
    """Read the settings of a run on several clusters.

    Raises:
        ExperimentError, SettingsError: the settings are invalid. The message names the key.
    """
    known = ("clusters", *_PLAIN, *_LIMITS, *_LATENCIES, *_LOCAL)
    for key, value in given.items():
        if key not in known:
            raise ExperimentError(f"multicluster.{key}: not known; known are: {', '.join(known)}")
        if key in _WORDS and value not in _WORDS[key]:
            words = ", ".join(_WORDS[key])
            raise ExperimentError(f"multicluster.{key}: expected one of {words}, not {value!r}")
        if key not in ("clusters", *_WORDS, "reservations") and not _is_number(value):
            raise ExperimentError(f"multicluster.{key}: expected a number, not {value!r}")
    clusters: tuple[Cluster, ...] = parse_clusters(str(given.get("clusters", "")))
    return MulticlusterSettings(
        clusters=clusters,
        limits=Limits(**{key: given[key] for key in _LIMITS if key in given}),
        latencies=Latencies(**{key: given[key] for key in _LATENCIES if key in given}),
        local_users=LocalUsers(**{_LOCAL[key]: given[key] for key in _LOCAL if key in given}),
        seed=seed,
        **{key: given[key] for key in _PLAIN if key in given},
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
