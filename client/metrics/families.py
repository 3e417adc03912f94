"""Makes metrics for Prometheus from the server's answer to the request ``metrics``.

The labels have few values: no metric names a job or a user. Only the node metrics have a series for
each node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

#: States of nodes whose processors jobs can get or keep.
_USABLE = ("UP",)


class Family(NamedTuple):
    """A metric of the server, which is a counter or a histogram: its name, help text and labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    #: Values of the only label that have a series from the start, so that the first increase shows.
    values: tuple[str, ...] = ()


COUNTERS: Mapping[str, Family] = {
    "pass_failures": Family(
        "pliant_scheduling_pass_failures",
        "Scheduling passes in which the strategy failed.",
        ("strategy",),
    ),
    "negotiations": Family(
        "pliant_negotiations",
        "Offers, answers of applications and other ends of negotiations.",
        ("outcome",),
        ("offered", "accept", "counter", "reject", "withdrawn", "expired"),
    ),
    "resizes": Family(
        "pliant_resizes", "Resizes by outcome.", ("outcome",), ("grown", "shrunk", "rolled_back")
    ),
    "job_starts": Family("pliant_job_starts", "Runs of jobs that were started."),
    "jobs_ended": Family(
        "pliant_jobs_ended",
        "Jobs that ended, by their final state.",
        ("state",),
        ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"),
    ),
    "requests_refused": Family(
        "pliant_requests_refused",
        "Requests of users that were refused, by operation and kind of error.",
        ("operation", "kind"),
    ),
}
HISTOGRAMS: Mapping[str, Family] = {
    "pass_seconds": Family(
        "pliant_scheduling_pass_seconds", "Duration of a scheduling pass.", ("strategy",)
    ),
    "commit_seconds": Family("pliant_commit_seconds", "Duration of a commit of the database."),
    "commit_transactions": Family(
        "pliant_commit_transactions", "Transactions that shared one commit."
    ),
    "commit_rows": Family("pliant_commit_rows", "Rows that one commit wrote."),
    "request_seconds": Family(
        "pliant_request_seconds",
        "Time until a request was answered, without requests that wait for the end of a job.",
        ("operation",),
    ),
    "resize_step_seconds": Family(
        "pliant_resize_step_seconds",
        "Duration of a step of a resize: prepare before the pause, check, join, move and "
        "commit within it, total for the whole pause.",
        ("step",),
    ),
}


def exposition(answer: Mapping[str, Any] | None) -> bytes:
    """Return metrics in the text format of Prometheus.

    Args:
        answer: the answer of the server; None if the server does not answer.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Answer(answer))
    return generate_latest(registry)


class _Answer(Collector):
    def __init__(self, answer: Mapping[str, Any] | None) -> None:
        self._answer = answer

    def collect(self) -> Iterator[Metric]:
        answer = self._answer
        yield _gauge("pliant_up", "Whether the server answers.", answer is not None)
        if answer is not None:
            yield from _of_server(answer)
            yield from _of_nodes(answer["nodes"])
            yield from _counters(answer["counters"], answer["strategy"])
            yield from _histograms(answer["histograms"])


def _of_server(answer: Mapping[str, Any]) -> Iterator[Metric]:
    server = answer["server"]
    yield _by_label(
        "pliant_build_info", "The version of the server.", "version", {server["version"]: 1}
    )
    yield _by_label(
        "pliant_strategy_info", "The strategy in force.", "strategy", {answer["strategy"]: 1}
    )
    yield _gauge(
        "pliant_server_generation",
        "Number of times that the server has been started.",
        server["generation"],
    )
    yield _gauge(
        "pliant_server_start_time_seconds",
        "When the server was started, in seconds since the epoch.",
        server["started"],
    )
    yield _by_label("pliant_jobs", "Jobs that have not ended.", "state", answer["jobs"])
    yield _gauge(
        "pliant_applications_connected",
        "Applications that are connected to the server.",
        answer["applications"],
    )


def _of_nodes(nodes: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    rows = list(nodes)
    own = [row for row in rows if not row["spare"]]
    usable = [row for row in own if row["state"] in _USABLE]
    states = Counter(row["state"] for row in rows)
    yield _by_label("pliant_nodes", "Nodes.", "state", states)
    yield _gauge("pliant_node_streams", "Nodes that are connected.", _count(rows, "connected"))
    yield _gauge("pliant_processors", "Processors of nodes that are not spare.", _sum(own, "slots"))
    yield _gauge(
        "pliant_processors_usable",
        "Processors on which jobs can be started: those of nodes in the state UP.",
        _sum(usable, "slots"),
    )
    yield _gauge("pliant_processors_held", "Processors that jobs hold.", _sum(rows, "used"))
    for name, help_text, key in (
        ("pliant_node_processors", "Processors of a node.", "slots"),
        ("pliant_node_processors_held", "Processors of a node that jobs hold.", "used"),
        ("pliant_node_connected", "Whether a node is connected to the server.", "connected"),
    ):
        yield _by_label(name, help_text, "node", {row["name"]: row[key] for row in rows})
    up = {row["name"]: row["state"] in _USABLE for row in rows}
    yield _by_label("pliant_node_up", "Whether a node accepts new work.", "node", up)


def _counters(found: Mapping[str, Any], strategy: str) -> Iterator[Metric]:
    for key, family in COUNTERS.items():
        metric = CounterMetricFamily(family.name, family.help, labels=family.labels)
        values: dict[tuple[str, ...], int] = {(value,): 0 for value in family.values}
        if not family.labels:
            values[()] = 0
        if family.labels == ("strategy",):
            values[strategy,] = 0
        values |= {tuple(labels): number for labels, number in found.get(key, ())}
        for labels, number in values.items():
            metric.add_metric(labels, number)
        yield metric


def _histograms(found: Mapping[str, Any]) -> Iterator[Metric]:
    for key, family in HISTOGRAMS.items():
        metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        bounds = [*(str(float(bound)) for bound in found[key]["bounds"]), "+Inf"]
        for labels, counts, total in found[key]["series"]:
            metric.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        yield metric


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_text, value=float(value))


def _by_label(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    metric = GaugeMetricFamily(name, help_text, labels=[label])
    for key, value in values.items():
        metric.add_metric([key], float(value))
    return metric


def _sum(rows: Iterable[Mapping[str, Any]], key: str) -> int:
    return sum(row[key] for row in rows)


def _count(rows: Iterable[Mapping[str, Any]], key: str) -> int:
    return sum(bool(row[key]) for row in rows)
