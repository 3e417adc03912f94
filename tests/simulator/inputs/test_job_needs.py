"""What jobs of logs and side files need of their nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.core.values.node_needs import GPU, MEMORY, NodeNeeds
from pliant.core.values.node_property_constraint import Constraint
from pliant.simulator.inputs.swf import read_swf
from pliant.simulator.inputs.workload import WorkloadError
from pliant.simulator.inputs.workload_options import merge_side_file

#: Three jobs; field 10 is the requested memory in KB for each processor.
LOG = """\
1 0 0 10 2 -1 -1 2 20 1024 1 1 1 1 1 1 -1 -1
2 1 0 10 2 -1 -1 2 20 -1 1 1 1 1 1 1 -1 -1
3 2 0 10 2 -1 -1 2 20 much 1 1 1 1 1 1 -1 -1
"""


def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


def test_memory_of_a_log_is_used_only_if_asked_for(tmp_path: Path) -> None:
    path = log(tmp_path)
    assert [job.needs for job in read_swf(path, 8).jobs] == [None, None, None]
    needs = [job.needs for job in read_swf(path, 8, memory=True).jobs]
    assert needs == [NodeNeeds(((MEMORY, 1 << 20),)), None, None]


def test_needs_in_a_side_file(tmp_path: Path) -> None:
    side = tmp_path / "side.csv"
    side.write_text("job,memory,gpus,constraint\n1,4G,2,fast|big\n2,,,\n")
    one, *_ = merge_side_file(read_swf(log(tmp_path), 8), side).jobs
    assert one.needs == NodeNeeds(((GPU, 2), (MEMORY, 4 << 30)), Constraint("fast|big"))
    assert (one.malleable, one.sizes.min) == (False, 2)


@pytest.mark.parametrize("values", ["x,,", ",0,", ",,a&"])
def test_wrong_needs_name_their_line(tmp_path: Path, values: str) -> None:
    side = tmp_path / "side.csv"
    side.write_text(f"job,memory,gpus,constraint\n1,{values}\n")
    with pytest.raises(WorkloadError, match=r"side\.csv:2: "):
        merge_side_file(read_swf(log(tmp_path), 8), side)
