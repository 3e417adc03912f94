"""Models: their moments are the published or measured ones, and a seed always says the same."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.values.sizes import parse_sizes
from pliant.core.values.speedup import LINEAR, Downey
from pliant.simulator.inputs import models
from pliant.simulator.inputs.models.kumar import BENCHMARK
from pliant.simulator.inputs.models.lublin import TYPELESS, daily_cycle, gamma_cdf
from pliant.simulator.inputs.workload import SimJob, Workload, WorkloadError


def gaps(jobs: list[SimJob]) -> list[float]:
    return [after.submit - before.submit for before, after in pairwise(jobs)]


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_a_seed_always_gives_the_same_workload(name: str) -> None:
    first, again, other = (models.make(name, {"jobs": 50, "seed": seed}) for seed in (4, 4, 5))
    assert first == again
    assert first.jobs != other.jobs
    assert [job.id for job in first.jobs] == list(range(1, 51))
    assert [job.submit for job in first.jobs] == sorted(job.submit for job in first.jobs)


class TestDowney:
    def test_moments(self) -> None:
        jobs = models.downey(jobs=20_000, gap=10, seed=1).jobs
        curves = [job.speedup for job in jobs if isinstance(job.speedup, Downey)]
        assert len(curves) == len(jobs)
        average = statistics.mean(curve.average for curve in curves)
        assert average == pytest.approx(127 / math.log(128), rel=0.02)
        assert statistics.mean(curve.sigma for curve in curves) == pytest.approx(1.0, rel=0.02)
        work = statistics.mean(job.work for job in jobs)
        assert work == pytest.approx((133_000 - 6) / math.log(133_000 / 6), rel=0.03)
        assert statistics.mean(gaps(jobs)) == pytest.approx(10, rel=0.03)

    def test_a_rigid_job_asks_for_its_average_parallelism(self) -> None:
        for job in models.downey(jobs=200, processors=32).jobs:
            assert isinstance(job.speedup, Downey)
            assert job.requested == min(32, round(job.speedup.average)) == job.sizes.min
            assert job.estimate_s == job.runtime

    def test_malleable_jobs(self) -> None:
        workload = models.downey(jobs=100, malleable=25, flexibility="2-64:pow2", speedup="linear")
        chosen = [job for job in workload.jobs if job.malleable]
        assert len(chosen) == 25
        assert {(str(job.sizes), str(job.speedup)) for job in chosen} == {
            ("{2,4,8,16,32,64}", "linear")
        }


class TestGhafoor:
    def test_moments(self) -> None:
        jobs = models.ghafoor(jobs=20_000, seed=2).jobs
        assert (min(job.requested for job in jobs), max(job.requested for job in jobs)) == (16, 128)
        size = statistics.mean(job.requested for job in jobs)
        assert size == pytest.approx(112 / math.log(8), rel=0.02)
        run = statistics.mean(job.runtime for job in jobs)
        assert run == pytest.approx(3500 / math.log(36), rel=0.02)
        assert statistics.mean(gaps(jobs)) == pytest.approx(20, rel=0.03)

    def test_work_does_not_depend_on_who_is_malleable(self) -> None:
        rigid, mixed = models.ghafoor(seed=3), models.ghafoor(seed=3, malleable=40)
        assert [job.work for job in rigid.jobs] == [job.work for job in mixed.jobs]
        assert sum(job.malleable for job in mixed.jobs) == 400

    @pytest.mark.parametrize(
        ("processors", "utilization", "turnaround"), [(256, 0.846, 112_462), (512, 0.915, 45_951)]
    )
    def test_calibration(self, processors: int, utilization: float, turnaround: float) -> None:
        """The rigid rows of Ghafoor's Table 6.2, by strict FCFS on 15 workloads."""
        runs = [strict_fcfs(models.ghafoor(processors=processors, seed=seed)) for seed in range(15)]
        assert statistics.median(used for used, _ in runs) == pytest.approx(utilization, abs=0.01)
        assert statistics.median(took for _, took in runs) == pytest.approx(turnaround, rel=0.04)


def strict_fcfs(workload: Workload) -> tuple[float, float]:
    """Utilization and mean turnaround if each job waits for all before it, by counting."""
    assert workload.processors is not None
    free, now, ends, taken = workload.processors, 0.0, list[tuple[float, int]](), 0.0
    for job in workload.jobs:
        now = max(now, job.submit)
        while free < job.requested or (ends and ends[0][0] <= now):
            ends.sort()
            end, size = ends.pop(0)
            now, free = max(now, end), free + size
            ends.sort()
        free -= job.requested
        ends.append((now + job.runtime, job.requested))
        ends.sort()
        taken += now + job.runtime - job.submit
    span = max(end for end, _ in ends)
    work = sum(job.work for job in workload.jobs)
    return work / workload.processors / span, taken / len(workload.jobs)


@pytest.fixture(scope="module")
def lublin_jobs() -> list[SimJob]:
    return models.lublin(jobs=30_000, processors=256, seed=3).jobs


class TestLublin:
    """The cross-check of the typeless model on 256 processors with the published sample."""

    def test_sizes(self, lublin_jobs: list[SimJob]) -> None:
        parallel = [job.requested for job in lublin_jobs if job.requested > 1]
        assert 1 - len(parallel) / len(lublin_jobs) == pytest.approx(0.245, abs=0.008)
        powers = sum(size & (size - 1) == 0 for size in parallel) / len(parallel)
        assert powers == pytest.approx(0.814, abs=0.008)
        small = sum(math.log2(size) <= 5.5 for size in parallel) / len(parallel)
        assert small == pytest.approx(0.8605, abs=0.008)
        assert statistics.mean(job.requested for job in lublin_jobs) == pytest.approx(
            22.12, rel=0.03
        )

    def test_run_times(self, lublin_jobs: list[SimJob]) -> None:
        runs = [job.runtime for job in lublin_jobs]
        assert statistics.mean(runs) == pytest.approx(4865, rel=0.04)
        assert statistics.mean(math.log(run) for run in runs if run) == pytest.approx(
            5.69, rel=0.01
        )
        assert all(run == int(run) <= 162_754 for run in runs)

    def test_arrivals(self, lublin_jobs: list[SimJob]) -> None:
        ordered = sorted(gaps(lublin_jobs))
        assert ordered[len(ordered) // 2] == pytest.approx(116.7, rel=0.04)
        assert ordered[len(ordered) * 9 // 10] == pytest.approx(1255, rel=0.05)
        hours = [0] * 24
        for job in lublin_jobs:
            hours[int(job.submit % 86_400 // 3600)] += 1
        assert hours.index(min(hours)) in (4, 5, 6)
        assert 11 <= hours.index(max(hours)) <= 15

    def test_the_start_hour_moves_the_day(self) -> None:
        morning = models.lublin(jobs=300, start_hour=12).jobs[-1].submit
        assert morning != models.lublin(jobs=300).jobs[-1].submit

    def test_two_types_have_clocks_of_their_own(self) -> None:
        jobs = models.lublin(jobs=2000, kind="both", seed=5).jobs
        users = {job.user for job in jobs}
        assert users == {"batch", "interactive"}
        assert max(job.requested for job in jobs if job.user == "interactive") <= 45
        assert [job.submit for job in jobs] == sorted(job.submit for job in jobs)

    @pytest.mark.parametrize("processors", [2, 3, 8, 100, 4096])
    def test_any_machine(self, processors: int) -> None:
        jobs = models.lublin(jobs=300, processors=processors).jobs
        assert all(1 <= job.requested <= processors for job in jobs)

    def test_the_cycle_has_mean_one(self) -> None:
        weights = daily_cycle(TYPELESS)
        assert math.fsum(weights) == pytest.approx(48)
        assert min(weights) > 0

    @given(st.floats(0.01, 60))
    def test_the_gamma_distribution(self, value: float) -> None:
        """Shapes 1 and 2 have closed forms."""
        assert gamma_cdf(1.0, value) == pytest.approx(-math.expm1(-value), rel=1e-9)
        closed = 1 - math.exp(-value) * (1 + value)
        assert gamma_cdf(2.0, value) == pytest.approx(closed, rel=1e-6, abs=1e-9)


class TestKumar:
    def test_moments(self) -> None:
        jobs = models.kumar(gap=60, base_time=60, minpe="1-64", profit=1000, deadline=3840).jobs
        assert len(jobs) == 10_000
        assert statistics.mean(job.work for job in jobs) == pytest.approx(3840, rel=0.03)
        assert statistics.mean(gaps(jobs)) == pytest.approx(60, rel=0.03)
        assert statistics.mean(job.sizes.min for job in jobs) == pytest.approx(32.5, rel=0.02)
        deals = [job.contract for job in jobs if job.contract]
        assert statistics.mean(deal.deadline_s for deal in deals) == pytest.approx(3840, rel=0.04)
        assert statistics.mean(deal.profit for deal in deals) == pytest.approx(1000, rel=0.04)
        assert {deal.soft for deal in deals} == {0.5}

    def test_both_classes_are_the_same_jobs(self) -> None:
        adaptive = models.kumar(jobs=100, seed=8).jobs
        traditional = models.kumar(jobs=100, seed=8, job_class="traditional").jobs
        for one, other in zip(adaptive, traditional, strict=True):
            assert (one.submit, one.work, one.sizes.min) == (
                other.submit,
                other.work,
                other.sizes.min,
            )
            assert other.sizes.fixed
            assert not other.malleable
            assert one.sizes.max == 64
            assert one.malleable == (one.sizes.min < 64)

    def test_shared_streams_tie_the_work_to_the_gap_before(self) -> None:
        jobs = models.kumar(jobs=50, gap=100, streams="shared").jobs
        for job, gap in zip(jobs[1:], gaps(jobs), strict=True):
            assert job.work / (64 * 64.5) == pytest.approx(gap / 100)

    def test_the_benchmark_takes_the_base_time_on_the_whole_machine(self) -> None:
        jobs = models.kumar(jobs=5000, speedup="benchmark").jobs
        assert jobs[0].speedup == BENCHMARK
        assert statistics.mean(job.estimate_s or 0 for job in jobs) == pytest.approx(64.5, rel=0.04)

    def test_other_speedups(self) -> None:
        (job,) = models.kumar(jobs=1, speedup="amdahl:0.9").jobs
        assert job.speedup(10**9) == pytest.approx(10)


class TestTransformations:
    @given(st.integers(1, 300), st.floats(0, 100))
    def test_evenly_spread_jobs_stand_at_equal_distances(self, count: int, percent: float) -> None:
        workload = models.make_malleable(
            models.ghafoor(jobs=count), percent, parse_sizes("2-8"), "even", Random(0)
        )
        places = [place for place, job in enumerate(workload.jobs) if job.malleable]
        assert len(places) == round(count * percent / 100)
        # The last is as far from the end: they are not all in front.
        steps = {after - before for before, after in pairwise([*places, count])}
        assert max(steps, default=0) - min(steps, default=0) <= 1
        assert places[:1] in ([], [0])

    def test_spread_at_random(self) -> None:
        base = models.ghafoor(jobs=100)
        one, other = (
            [
                job.id
                for job in models.make_malleable(base, 30, None, "random", Random(seed)).jobs
                if job.malleable
            ]
            for seed in (1, 2)
        )
        assert len(one) == len(other) == 30
        assert one != other

    def test_sizes_are_cut_to_the_machine(self) -> None:
        base = models.ghafoor(jobs=4)
        made = models.make_malleable(base, 100, parse_sizes("2-9000"), "even", Random(0))
        assert {str(job.sizes) for job in made.jobs} == {"2-256"}
        with pytest.raises(WorkloadError, match="only 256 processors"):
            models.make_malleable(base, 100, parse_sizes("300-400"), "even", Random(0))
        with pytest.raises(WorkloadError, match="between 0 and 100 percent, not 101"):
            models.make_malleable(base, 101, None, "even", Random(0))

    def test_evolving_jobs_have_phases_that_keep_their_work(self) -> None:
        base = models.ghafoor(jobs=200)
        made = models.make_evolving(base, 50, Random(4))
        evolving = [job for job in made.jobs if job.phases]
        assert len(evolving) == 100
        for job in evolving:
            assert math.fsum(phase.work for phase in job.phases) == pytest.approx(job.work)
            assert job.phases[0].maximum == job.requested
            assert 2 <= len(job.phases) <= 5
            for phase in job.phases:
                assert 1 <= phase.minimum <= phase.maximum <= 256
                assert phase.minimum in job.sizes
                assert phase.maximum in job.sizes

    def test_the_shrinking_factor_multiplies_submit_times(self) -> None:
        base = models.ghafoor(jobs=20)
        made = models.shrink(base, 0.25)
        assert [job.submit for job in made.jobs] == [job.submit * 0.25 for job in base.jobs]
        assert [job.work for job in made.jobs] == [job.work for job in base.jobs]
        for factor in (0, -1, math.inf, math.nan):
            with pytest.raises(WorkloadError, match="positive shrinking factor"):
                models.shrink(base, factor)


class TestNames:
    def test_parameters_in_one_word(self) -> None:
        made = models.make_workload("ghafoor:jobs=7,flexibility={1,2,4},malleable=100", seed=3)
        assert made == models.ghafoor(jobs=7, flexibility="{1,2,4}", malleable=100, seed=3)

    def test_what_the_text_says_goes_first(self) -> None:
        made = models.make_workload("lublin:processors=64", processors=8, seed=1, gap=3)
        assert made == models.lublin(processors=64, seed=1)

    def test_dashes_are_underscores(self) -> None:
        made = models.make_workload("kumar:job-class=traditional,jobs=3")
        assert made == models.kumar(job_class="traditional", jobs=3)

    def test_which_texts_are_models(self) -> None:
        assert models.is_model("kumar")
        assert models.is_model("downey:jobs=3")
        assert not models.is_model("kumar.swf")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("bar", "there is no model 'bar'; there are: downey, ghafoor, koala, kumar, lublin"),
            ("lublin:gap=3", "lublin: there is no parameter 'gap'; there are: jobs, processors, "),
            ("kumar:gap=x", "kumar: gap: expected a number, not 'x'"),
            ("kumar:gap=inf", "kumar: gap: expected a number, not 'inf'"),
            ("kumar:gap=-1", "kumar: gap: expected a number from 0 to 1e+30, not -1.0"),
            ("kumar:jobs=1.5", "kumar: jobs: expected a whole number, not '1.5'"),
            ("kumar:jobs=0", "kumar: jobs: expected at least 1, not 0"),
            ("kumar:jobs", "kumar: expected parameter=value, not 'jobs'"),
            ("kumar:minpe=9-4", "kumar: minpe: sizes '9-4': the minimum 9 is above the maximum 4"),
            ("kumar:minpe=65", "kumar: minpe: expected at most 64, not '65'"),
            ("kumar:speedup=warp", "kumar: speedup: speedup 'warp': write one of linear, "),
            ("kumar:job_class=x", "kumar: job_class: expected one of adaptive, traditional"),
            ("ghafoor:times=9", ""),
            ("ghafoor:times=9-3", "ghafoor: times: expected a range like 100-3600, not '9-3'"),
            ("ghafoor:sizes=16-999", "ghafoor: sizes: expected 1-256 at most, not '16-999'"),
            ("downey:sigma=-1", "downey: sigma: expected a number >= 0, not -1.0"),
            ("lublin:start_hour=24", "lublin: start_hour: expected an hour of the day, not 24.0"),
        ],
    )
    def test_errors_say_what_is_known(self, text: str, message: str) -> None:
        make: Callable[[], Workload] = lambda: models.make_workload(text, jobs=5)  # noqa: E731
        if not message:
            assert len(make().jobs) == 5
            return
        with pytest.raises(WorkloadError) as caught:
            make()
        assert str(caught.value).startswith(message)

    def test_ghafoor_jobs_scale_linearly(self) -> None:
        assert models.ghafoor(jobs=1).jobs[0].speedup == LINEAR
