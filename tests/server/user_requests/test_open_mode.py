"""Which order to start makes a node empty the output files of a job, or record its load."""

from __future__ import annotations

import math
import time

import pytest

from pliant.core.model.nodes import Node
from pliant.core.values.ids import FIRST_START, JobId, NodeName, ResizeId
from pliant.server.execution.start_orders import LaunchSettings, start_orders
from pliant.server.registry.job_program import Program
from pliant.server.registry.mpi_worlds import World
from pliant.server.registry.processor_nodes import NodeMap
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests.submission.submission_schema import check_submission

A, B = NodeName("a"), NodeName("b")
NODES = NodeMap([Node(A, 0, 2, address="ha"), Node(B, 2, 2, address="hb")])


def limits(
    processors: tuple[int, ...], *, mode: str = "truncate", run: int = 1, resize: int = FIRST_START
) -> dict[str, float]:
    """Return the time before which each node empties the output files."""
    program = Program(("true",), {}, "/", "", "/out", "", 0o022, mode)
    nodes = frozenset(NODES.host(processor).name for processor in processors)
    world = World("w", JobId(1), run, ResizeId(resize), 1, processors, nodes)
    around = LaunchSettings("", "", 0.0)
    orders = start_orders(world, "mpi", program, NODES, b"", around, may_grow=False)
    return {name: order.truncate_before for name, order in orders.items()}


def test_joining_ranks_continue_the_numbers_of_the_job() -> None:
    program = Program(("true",), {}, "/", "", "/%n-%t", "", 0o022, "append", files_by_node=True)
    world = World("w", JobId(1), 1, ResizeId(7), 2, (1, 3), frozenset({A, B}), joins=(2,))
    around = LaunchSettings("", "", 0.0)
    orders = start_orders(world, "mpi", program, NODES, b"", around, may_grow=True)
    assert {name: (order.stdout, order.first_rank) for name, order in orders.items()} == {
        A: (b"/1-%t", 1),
        B: (b"/0-%t", 1),
    }


def test_only_the_first_start_of_a_job_empties_its_files() -> None:
    assert limits((0, 1)) == {A: math.inf}
    assert limits((0, 1), mode="append") == {A: 0.0}
    assert limits((0, 1), run=2) == {A: 0.0}
    assert limits((0, 1), resize=7) == {A: 0.0}


def test_every_node_empties_them_but_for_what_this_start_has_written() -> None:
    before = time.time()
    found = limits((2, 3, 0))
    assert before - 1.0 < found[A] == found[B] < time.time()


def test_every_world_of_a_recorded_job_is_recorded() -> None:
    job = {"argv": ["true"], "cwd": "/", "record_load_s": 0.05}
    checked = check_submission(job, 4)
    spec = checked.spec(JobId(1), "ann", 1000, 0.0)
    program = Program.from_json(checked.program(spec).to_json())
    world = World("w", JobId(1), 2, ResizeId(7), 2, (1, 3), frozenset({A, B}), joins=(2,))
    around = LaunchSettings("", "", 0.0)
    orders = start_orders(world, "mpi", program, NODES, b"", around, may_grow=True)
    assert {name: order.record_load_s for name, order in orders.items()} == {A: 0.05, B: 0.05}


@pytest.mark.parametrize("interval", [0.0, 0.0099, 60.1, math.inf, math.nan])
def test_an_interval_out_of_bounds_is_refused_with_its_field(interval: float) -> None:
    with pytest.raises(UserRequestError, match=r"0\.01 to 60 seconds") as refused:
        check_submission({"argv": ["true"], "cwd": "/", "record_load_s": interval}, 4)
    assert refused.value.field == "record_load_s"


def test_an_unknown_mode_is_refused_with_its_field() -> None:
    with pytest.raises(UserRequestError, match="open_mode") as refused:
        check_submission({"argv": ["true"], "cwd": "/", "open_mode": "clobber"}, 4)
    assert refused.value.field == "open_mode"
