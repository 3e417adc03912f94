"""Pictures of quantities over time: processors in use, waiting jobs, and sizes of jobs."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from pliant.simulator.pictures.figure import (
    COLOURS,
    legend_outside,
    new_figure,
    time_unit,
    titled_axes,
)
from pliant.simulator.run.result import JobRecord, Span

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The number of jobs whose sizes one picture shows; more lines cannot be told apart.
_MOST_JOBS = 7

#: Times, and the value from each of them on.
Steps = tuple[list[float], list[float]]


def utilization(spans: Sequence[Span], processors: int, title: str) -> "Figure":
    """Return a picture of the share of the processors that jobs held."""
    changes = [(span.start, len(span.processors)) for span in spans]
    changes += [(span.end, -len(span.processors)) for span in spans]
    times, held = _steps(changes)
    percent = [100 * each / processors for each in held]
    return _filled(times, percent, title, "processors in use (%)", 100.0)


def queue_length(jobs: Sequence[JobRecord], title: str) -> "Figure":
    """Return a picture of the number of jobs that wait for their first start."""
    changes = [(job.submit, 1) for job in jobs]
    changes += [(job.end if job.start is None else job.start, -1) for job in jobs]
    times, waiting = _steps(changes)
    return _filled(times, waiting, title, "waiting jobs", 0.0)


def sizes(spans: Sequence[Span], title: str) -> "Figure":
    """Return a picture of the sizes over time of those jobs that were resized most often."""
    resizes: dict[int, int] = {}
    for span in spans:
        resizes[span.job] = resizes.get(span.job, 0) + span.resized
    chosen = sorted(resizes, key=lambda job: (-resizes[job], job))[:_MOST_JOBS]
    begin = min((span.start for span in spans), default=0.0)
    end = max((span.end for span in spans), default=begin + 1.0)
    seconds, unit = time_unit(end - begin)
    figure = new_figure()
    x_title = f"time since the first start ({unit})"
    axes = titled_axes(figure, f"{title}\njobs resized most often", x_title, "processors")
    for place, job in enumerate(sorted(chosen)):
        times, held = _steps(
            change
            for span in spans
            if span.job == job
            for change in ((span.start, len(span.processors)), (span.end, -len(span.processors)))
        )
        x = [(time - begin) / seconds for time in times]
        label = f"job {job}, {resizes[job]} resizes"
        axes.step(x, held, where="post", color=COLOURS[place], linewidth=1.4, label=label)
    axes.set_ylim(bottom=0)
    if chosen:
        legend_outside(axes)
    return figure


def _filled(
    times: list[float], values: Sequence[float], title: str, y: str, top: float
) -> "Figure":
    begin, end = (times[0], times[-1]) if times else (0.0, 1.0)
    seconds, unit = time_unit(end - begin)
    figure = new_figure()
    axes = titled_axes(figure, title, f"time since the beginning ({unit})", y)
    x = [(time - begin) / seconds for time in times]
    axes.fill_between(x, values, step="post", color=COLOURS[5], alpha=0.5)
    axes.step(x, values, where="post", color=COLOURS[0], linewidth=0.8, label=y)
    mean = _mean(times, values)
    axes.axhline(mean, color=COLOURS[1], linestyle="--", linewidth=1.2, label=f"mean {mean:.3g}")
    axes.set_ylim(0, max(top, max(values, default=1.0), 1.0) * 1.05)
    legend_outside(axes)
    return figure


def _steps(changes: Iterable[tuple[float, float]]) -> Steps:
    """Return the times of changes in order, and the sum of all changes up to each of them."""
    by_time: dict[float, float] = {}
    for time, change in changes:
        by_time[time] = by_time.get(time, 0) + change
    times = sorted(by_time)
    return times, list(accumulate(by_time[time] for time in times))


def _mean(times: Sequence[float], values: Sequence[float]) -> float:
    span = times[-1] - times[0] if times else 0.0
    area = sum(
        (after - before) * value
        for before, after, value in zip(times, times[1:], values, strict=False)
    )
    return area / span if span else 0.0
