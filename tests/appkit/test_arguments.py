"""What a program gives that makes no sense: the error that is promised, which names it. No MPI."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pliant.appkit.appkit_errors import DistributionError, StateError
from pliant.appkit.decorator import malleable
from pliant.appkit.job import Job
from pliant.appkit.loops import Loops
from pliant.appkit.redistribution.transfer_plan import RankMap
from pliant.appkit.registered_objects import JobData
from rankkit import member


@pytest.fixture
def runtime() -> Any:
    return SimpleNamespace(before_hooks=[], after_hooks=[], on_offer=None)


@pytest.fixture
def data() -> JobData:
    return JobData(member(1, 3))


@pytest.fixture
def job(data: JobData, runtime: Any) -> Any:
    return Job(data, Loops(), runtime)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda job: job.block("u", 5, halo=1.5), "array 'u': halo=1.5 is no whole number"),
        (lambda job: job.block("u", 5, halo="1"), "array 'u': halo='1' is no whole number"),
        (lambda job: job.block("u", 5, axis="0"), "array 'u': axis='0' is no whole number"),
        (lambda job: job.block("u", 5, axis=None), "array 'u': axis=None is no whole number"),
        (lambda job: job.cyclic("u", 5, block=1.5), "array 'u': block=1.5 is no whole number"),
        (lambda job: job.cyclic("u", 5, axis=0.0), "array 'u': axis=0.0 is no whole number"),
        (lambda job: job.block_cyclic("u", (5, 5), blocks=2), "blocks 2: two of each"),
        (lambda job: job.block_cyclic("u", (5, 5), blocks=(2, 1.5)), "'u': blocks .2, 1.5.: write"),
        (lambda job: job.block_cyclic("u", (5, 5), blocks=None), "'u': blocks None: write"),
        (lambda job: job.rng("r", seed="a"), "rng 'r': seed='a' is no whole number"),
        (lambda job: job.rng("r", seed=1.0), "rng 'r': seed=1.0 is no whole number"),
        (lambda job: job.rng("r", seed=-1), "rng 'r': seed -1 is negative"),
        (lambda job: job.items("p", "nonsense"), "items 'p': dtype='nonsense' is no type"),
        (lambda job: job.csr("A", (4, 4), dtype="S"), "matrix 'A': dtype='S' has cells"),
        (lambda job: job.state(_values=3), "'_values' is a name of its own"),
        (lambda job: job.state(a=1, _membership=4), "'_membership' is a name of its own"),
        (lambda job: job.state(__class__=4), "'__class__' is a name of its own"),
    ],
)
def test_a_value_is_refused_by_its_name(
    job: Job, data: JobData, call: Callable[[Job], Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        call(job)
    assert data.description() == [], "nothing is registered"


@pytest.mark.parametrize("integer", [int, np.int32, np.uint8])
def test_whole_numbers_of_any_type_do(
    job: Job, data: JobData, runtime: Any, integer: Callable[[int], int]
) -> None:
    one, two = integer(1), integer(2)
    job.block("u", (two, integer(9)), axis=one, halo=two)
    job.cyclic("c", (two, integer(9)), axis=one, block=two)
    job.block_cyclic("b", (5, 5), blocks=(two, one), grid=lambda size: (1, size))
    job.rng("r", seed=two)
    plain_data = JobData(member(1, 3))
    plain = Job(plain_data, Loops(), runtime)
    plain.block("u", (2, 9), axis=1, halo=2)
    plain.cyclic("c", (2, 9), axis=1, block=2)
    plain.block_cyclic("b", (5, 5), blocks=(2, 1), grid=lambda size: (1, size))
    plain.rng("r", seed=2)
    assert repr(data.description()) == repr(plain_data.description())
    malleable("1-4", prefer=two)


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        ([0, 1, -1, 2], "gave part -1: parts are numbered from 0"),
        ([0, 1, -5, 9], "gave part -5"),
        ([[0, 1], [2]], "owner= is no array"),
        ([0.0, 1.0, 2.0, 3.0], "type float64"),
        (None, "type object"),
    ],
)
def test_parts_are_looked_at_when_they_are_registered(job: Job, owner: Any, words: str) -> None:
    with pytest.raises(DistributionError, match=f"array 'u': .*{words}"):
        job.partition("u", 4, owner=owner)


@pytest.mark.parametrize("hook", [5, "x", None, (print,)])
@pytest.mark.parametrize("kind", ["before_resize", "after_resize", "on_offer", "derive"])
def test_a_hook_that_is_no_function_is_refused(
    job: Job, data: JobData, runtime: Any, kind: str, hook: Any
) -> None:
    with pytest.raises(TypeError, match=rf"job\.{kind}: .* is no function"):
        getattr(job, kind)(hook)
    kept = (runtime.before_hooks, runtime.after_hooks, runtime.on_offer, data.derived)
    assert kept == ([], [], None, [])


def test_any_other_name_is_one_of_a_state(job: Job) -> None:
    state = job.state(self=1, values=2, check=3, names=4, mro=5)
    state.self += 10
    assert (state.self, state.values, state.check, state.names, state.mro) == (11, 2, 3, 4, 5)
    assert "self=11" in repr(state)


def test_a_halo_wider_than_the_smallest_block_is_refused(job: Job) -> None:
    words = "halo=2 is wider than the smallest block, which has 1 cell on 3 processes"
    with pytest.raises(DistributionError, match=words):
        job.block("u", 5, halo=2)
    job.block("wide", 6, halo=2)
    job.block("own", 6, halo=2, lengths=lambda size: [3] * 2 + [0] * (size - 2))
    array = job.block("grown", 8, halo=2)
    with pytest.raises(DistributionError, match=r"array 'grown': .* on 5 processes"):
        array.prepare(RankMap.expand(3, 5), 0)


def test_a_state_that_cannot_be_sent_is_refused_when_it_is_registered(
    job: Job, data: JobData
) -> None:
    with pytest.raises(StateError, match=r"'f' in job.state, a function, cannot be pickled"):
        job.state(fine=1, f=lambda: 0)
    assert data.states == []


def test_python_names_methods_as_programs_do(job: Any) -> None:
    for call, name in (
        (partial(job.block, "u", 5, hallo=1), "Job.block"),
        (job.root_only, "Job.root_only"),
    ):
        with pytest.raises(TypeError, match=rf"^{name}\(\)"):
            call()
