"""The page about lists of jobs has a row for each field of the JSON, and no other."""

from __future__ import annotations

import re
from dataclasses import replace

from pliant.client.commands.jobstat import FIELDS
from pliant.client.listing.columns import COLUMNS
from pliant.core.arrays.task_numbers import parse_array
from pliant.core.model.jobs import Job, JobSpec, JobType
from pliant.core.model.lifecycle import JobState
from pliant.core.model.warning_signal import parse_warning
from pliant.core.values.dependencies import parse_dependencies
from pliant.core.values.ids import JobId
from pliant.core.values.node_needs import NodeNeeds
from pliant.core.values.processors import from_indices
from pliant.core.values.profit_contract import parse_profit
from pliant.core.values.resources import parse_needs
from pliant.core.values.sizes import Sizes
from pliant.server.registry.status_cache import StatusCache
from testkit import ROOT


def job_with_everything() -> Job:
    spec = JobSpec(
        JobId(1),
        "sim",
        "ann",
        JobType.MPI,
        Sizes((1,)),
        0.0,
        estimate_s=5.0,
        time_limit_s=10.0,
        contract=parse_profit("5", 100.0),
        resources=parse_needs(["matlab=1"]),
        node_needs=NodeNeeds((("gpu", 1),), None, "", ""),
        account="physics",
        dependencies=parse_dependencies("afterok:9"),
        warning=parse_warning("USR1@5"),
        comment="for the paper",
        notify="end,fail ann@example.org",
        components=(1,),
        begin=2.0,
    )
    return Job(
        spec,
        JobState.RUNNING,
        ranks=(1,),
        occupied=from_indices([1]),
        start=1.0,
        reserved=from_indices([2]),
        donors=frozenset({JobId(2)}),
    )


def test_every_field_has_its_row() -> None:
    status = StatusCache()
    array = JobSpec(JobId(2), "sim", "ann", JobType.MPI, Sizes((1,)), 0.0, tasks=parse_array("1-9"))
    task = replace(array, id=JobId(4), tasks=None, array=JobId(2))
    jobs = (job_with_everything(), *(Job(spec, JobState.PENDING) for spec in (array, task)))
    status.publish_jobs(jobs)
    info = {name for job in status.jobs(ended_since=None) for name in job}
    table = (ROOT / "docs/listing.md").read_text().partition("## JSON")[2]
    documented = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert len(documented) == len(set(documented))
    assert set(documented) == {*info, "profit_now"}  # which the command adds
    assert set(FIELDS) <= set(documented)
    needed = {field for column in COLUMNS.values() for field in column.fields}
    assert needed <= set(documented)
