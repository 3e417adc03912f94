"""Names of the metrics of a simulation of several clusters, and of the curves made of them."""

from collections.abc import Mapping

#: The metrics with their descriptions.
DESCRIPTIONS: Mapping[str, str] = {
    "jobs": "jobs submitted",
    "completed": "jobs that did all of their work",
    "rejected": "jobs that could not be placed",
    "failed": "jobs that lost processors in the failure of a cluster",
    "mean_wait_s": "submission to start",
    "longest_wait_s": "the longest wait of a job",
    "mean_execution_s": "start to end",
    "mean_turnaround_s": "submission to end (response time)",
    "p95_turnaround_s": "submission to end",
    "average_size": "mean over jobs of the processors used on average",
    "average_size_spread": "standard deviation over jobs of the processors used on average",
    "largest_size": "mean over jobs of the largest number of processors used",
    "area": "processor-seconds held by jobs",
    "used_nodes": "processors held, mean from the first submission to the last end",
    "busy_nodes": "processors held, mean from the first to the last submission",
    "peak_nodes": "most processors held at one time",
    "schedule_span_s": "first submission to last end",
    "offers": "offers of growth and requests to shrink",
    "adaptations": "resizes carried out",
    "grows": "growths carried out",
    "shrinks": "shrinks carried out",
    "failed_tries": "failed placements and claims",
    "failed_claims": "claims that found too few processors",
    "stubs": "stubs of growths that were submitted",
    "lost_stubs": "stubs of growths that found no processor",
    "lost_stubs_pct": "percent of the stubs that found no processor",
    "local_jobs": "jobs of local users, from the first to the last submission",
    "local_wait_s": "submission to start of local users' jobs",
}
#: The metrics that are counted when something happens.
COUNTED = ("offers", "grows", "shrinks", "failed_tries", "failed_claims", "stubs", "lost_stubs")
#: The metrics that grow with the number of jobs.
TOTALS = frozenset(
    {
        *COUNTED,
        *("jobs", "completed", "rejected", "failed", "area", "schedule_span_s"),
        *("adaptations", "local_jobs"),
    }
)
#: Distributions over the jobs, as Figures 7 and 8 (a) to (d) have them, by quantiles.
DISTRIBUTIONS = ("average_size", "largest_size", "execution_s", "turnaround_s")
#: The percents of the jobs at which a distribution is given.
PERCENTS = tuple(range(0, 101, 5))
#: Values over time, as in Figures 7 and 8 (e) and (f), at equal steps from the first submission on.
SERIES = ("used_nodes", "adaptations")
#: The steps of a series. The last submission is at step 50.
STEPS = tuple(range(61))


def curve_points(name: str) -> list[tuple[float, str]]:
    """Return the points of a curve, each as its position and the name of the metric with its value.

    Args:
        name: a distribution, whose positions are percents of the jobs; or a series, whose positions
            are percents of the time from the first to the last submission.
    """
    if name in DISTRIBUTIONS:
        return [(percent, f"{name}@{percent}%") for percent in PERCENTS]
    return [(2.0 * step, f"{name}@{step}") for step in STEPS]
