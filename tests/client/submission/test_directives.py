from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.client.client_errors import UsageError
from pliant.client.submission.directives import parse_directives, read_head


def test_directives_of_the_head() -> None:
    text = """#!/bin/sh
# a comment
#JOB -n 4 --name "two words"

#JOB --time 2h   # half a day is too long
#JOBLESS --hold
echo hello
#JOB --hold
"""
    found = parse_directives(text)
    assert [(each.line, each.words) for each in found] == [
        (3, ["-n", "4", "--name", "two words"]),
        (5, ["--time", "2h"]),
    ]
    assert found[1].text == "#JOB --time 2h   # half a day is too long"
    windows = parse_directives(text.replace("\n", "\r\n"))
    assert [vars(each) for each in windows] == [vars(each) for each in found]


def test_an_open_quote_names_the_line() -> None:
    with pytest.raises(UsageError, match=r"run\.sh:2: .*no closing quotation; close"):
        parse_directives('#!/bin/sh\n#JOB --name "x\n', "run.sh")


@given(st.lists(st.from_regex(r"[A-Za-z0-9=:.+-]+", fullmatch=True)))
def test_words_come_back(words: list[str]) -> None:
    found = parse_directives("#!/bin/sh\n" + "".join(f"#JOB {word}\n" for word in words))
    assert [word for each in found for word in each.words] == words


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_directives(text)
    except UsageError:
        pass


def test_files_that_are_no_scripts_have_none(tmp_path: Path) -> None:
    assert read_head(str(tmp_path / "missing")) == ""
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF\n#JOB -n 4\n")
    assert read_head(str(program)) == ""
    program.write_bytes(b"#!/usr/bin/env python3\n#JOB -n 4\n")
    (only,) = parse_directives(read_head(str(program)), str(program))
    assert only.words == ["-n", "4"]
