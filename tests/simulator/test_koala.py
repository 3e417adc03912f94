"""KOALA's strategies over time: which round follows what."""

from __future__ import annotations

import pytest

from corekit.simkit import by_id, job, rigid, run

FT, GADGET = "2-32:pow2", "2-46"


@pytest.mark.parametrize("name", ["egs+pra", "fpsma+pra"])
def test_a_waiting_job_starts_when_a_rigid_job_ends_the_growth_of_others(name: str) -> None:
    jobs = [
        job(1, 0, FT, 2000),
        job(2, 10, GADGET, 2000),
        job(3, 20, GADGET, 2000),
        rigid(4, 30, 2, 1000),
    ]
    records = by_id(run(jobs, 24, strategy=name, options={"threshold": 5}))
    # With the rigid job 20 processors are in use, one more than growth may reach.
    assert records[4].start == 30
    assert records[3].start == (30 if name == "egs+pra" else 20)
