"""The reference page is what the sources say, and has every name."""

from __future__ import annotations

import inspect
import re

import reference

import pliant.appkit as kit
from pliant.appkit.register_arrays import DataRegistration
from testkit import ROOT

PAGE = ROOT / "docs" / "appkit-reference.md"


def test_the_page_is_made_from_the_sources() -> None:
    again = "python docs/tools/reference.py > docs/appkit-reference.md"
    assert PAGE.read_text() == reference.page(), f"make it again: {again}"


def test_every_exported_name_is_there() -> None:
    page = reference.page()
    titles = {title.removeprefix("job.") for title in re.findall(r"^#{2,4} (\S+)$", page, re.M)}
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.M))
    assert set(kit.__all__) - titles - rows == {"Job"}  # its members are the titles
    assert "## The job" in page


def test_every_call_of_a_job_has_its_arguments() -> None:
    page = reference.page()
    for name, function in inspect.getmembers(kit.Job, inspect.isfunction):
        if not name.startswith("_"):
            signature = page.partition(f"### job.{name}\n\n```python\n")[2].partition("\n```")[0]
            expected = list(inspect.signature(function).parameters)[1:]
            assert re.findall(r"(?:^ {4}|\(|, )\**(\w+): ", signature, re.M) == expected, name


def test_calls_that_take_arguments_tell_each_and_its_errors() -> None:
    page = reference.page()
    for name in ("block", "items", "csr", "cyclic", "block_cyclic", "partition"):
        told = page.partition(f"### job.{name}\n")[2].partition("\n### ")[0]
        arguments = list(inspect.signature(getattr(DataRegistration, name)).parameters)[1:]
        assert [each for each in arguments if f"\n- `{each}`: " not in told] == []
        assert "- `DistributionError`: " in told
    job = page.partition("## The job\n")[2].partition("\n### ")[0]
    assert "`LateRegistration` inside a loop" in " ".join(job.split())


def test_what_is_for_resizes_is_not_there() -> None:
    page = reference.page()
    assert (
        re.findall(r"\b(?:BlockArray|Items|CsrMatrix)\.(?:plan|commit|local_metadata)\b", page)
        == []
    )
    assert re.findall(r"^- `_\w+`", page, re.M) == []


def test_no_name_is_without_a_text() -> None:
    assert re.findall(r"^- `[\w.]+`(?: \(`[^`]*`[^)]*\))?$", reference.page(), re.M) == []
