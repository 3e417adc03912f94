"""Hints for options of Slurm name options that exist, for options that do not."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from pliant.client import slurm_options
from pliant.client.shell_completion import all_words

#: Options of `pliant run` outside of a job, whose help is that of `jobsub`.
INTERACTIVE = {"--pty"}


@pytest.mark.parametrize(
    ("command", "hints"),
    [
        ("jobsub", slurm_options.SUBMISSION),
        ("jobstat", slurm_options.LISTING),
        ("jobdel", slurm_options.CANCELLING),
        ("jobacct", slurm_options.ACCOUNTING),
        ("nodestat", slurm_options.NODES),
    ],
)
def test_hints_name_options_that_exist(command: str, hints: Mapping[str, str]) -> None:
    words = {each.command: each.words for each in all_words()}
    assert not set(hints) & set(words[command])
    known = set(words[command]) | set(words["jobsub"]) | set(words["jobstat"]) | INTERACTIVE
    for hint in hints.values():
        assert set(re.findall(r"(?<!\S)--?[a-zA-Z][a-z-]*", hint)) <= known, hint
