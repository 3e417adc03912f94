from __future__ import annotations

from typing import Any

import pytest

from pliant.client.listing.jobs_in_columns import JobBlock, blocks_of


def test_a_value_alone_stands_for_all_jobs_of_its_block() -> None:
    block = JobBlock(2, {"id": [1, 2], "state": ["HELD"], "end": [None]})
    assert list(block.column("state")) == ["HELD", "HELD"]
    assert list(block.rows("id", "state")) == [(1, "HELD"), (2, "HELD")]
    assert list(block.rows("state", "end")) == [("HELD", None)]


@pytest.mark.parametrize(
    "answer",
    [
        {"fields": ["id", "end"], "blocks": [{"count": 2, "columns": [[1, 2], [None]]}]},
        {"fields": ["id", "end"], "rows": [[1, None], [2, None]]},
        {"jobs": [{"id": 1, "name": "a"}, {"id": 2, "end": None}]},
    ],
    ids=["blocks", "rows", "objects"],
)
def test_an_answer_may_have_blocks_rows_or_objects(answer: dict[str, Any]) -> None:
    (block,) = blocks_of(answer, ["id", "end"])
    assert (list(block.column("id")), list(block.column("end"))) == ([1, 2], [None, None])


@pytest.mark.parametrize("kind", ["blocks", "rows", "jobs"])
def test_an_answer_without_jobs_has_no_block(kind: str) -> None:
    assert blocks_of({"fields": ["id"], kind: []}, ["id"]) == []
