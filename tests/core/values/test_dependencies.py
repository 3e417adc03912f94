from __future__ import annotations

import pytest

from pliant.core.model.warning_signal import parse_warning
from pliant.core.values.dependencies import (
    MAX_DEPENDENCIES,
    format_dependencies,
    parse_dependencies,
)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("afterok:17", "afterok:17"),
        ("after:1:2,singleton", "after:1,after:2,singleton"),
        ("afterany:3,afterany:3", "afterany:3"),
        ("", ""),
    ],
)
def test_what_is_read_can_be_written(text: str, plain: str) -> None:
    found = parse_dependencies(text)
    assert format_dependencies(found) == plain
    assert parse_dependencies(plain) == found


@pytest.mark.parametrize(
    "text",
    [
        *("17", "afterok", "afterok:", "afterok:x", "afterok:-1", "afterok:0", "singleton:1"),
        *("later:1", ",", "after:" + ":".join(map(str, range(1, MAX_DEPENDENCIES + 2)))),
    ],
)
def test_other_texts_are_errors(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|unknown|limit|no job"):
        parse_dependencies(text)


@pytest.mark.parametrize(
    ("text", "shown"), [("USR1@60", "USR1@60"), ("sigterm@0.5", "TERM@0.5"), ("10@7", "USR1@7")]
)
def test_warnings(text: str, shown: str) -> None:
    assert str(parse_warning(text)) == shown


@pytest.mark.parametrize("text", ["USR1", "KILL@5", "NONE@5", "99@5", "USR1@0", "USR1@-1", "@5"])
def test_wrong_warnings(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|catch|more than"):
        parse_warning(text)
