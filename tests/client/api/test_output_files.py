from __future__ import annotations

from pathlib import Path

import pytest

from pliant.client import Job, RequestError
from pliant.client.api.output_files import read_output


def job(path: Path | str, state: str = "RUNNING") -> Job:
    return Job(7, user="ada", state=state, stdout=str(path))


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("lines", [0, 1, 3, 50_000])
def test_the_last_lines(tmp_path: Path, lines: int, end: str) -> None:
    text = "\n".join(f"line {number}" for number in range(lines)) + end
    (tmp_path / "out").write_text(text)
    for tail in (0, 1, 2, 3, 20_000):
        expected = text.splitlines(keepends=True)
        expected = expected[max(0, len(expected) - tail) :]
        assert read_output(job(tmp_path / "out"), tail) == "".join(expected)
    assert read_output(job(tmp_path / "out"), None) == text


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"a\xff\n")
    assert read_output(job(tmp_path / "out"), None) == "a\ufffd\n"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert read_output(job(tmp_path / "out", "PENDING"), None) == ""
    with pytest.raises(RequestError, match=r"job 7: .*/out: no such file") as caught:
        read_output(job(tmp_path / "out"), None)
    assert (caught.value.kind, caught.value.field) == ("not_found", "stdout")
    with pytest.raises(RequestError, match="ask ada"):
        read_output(job(""), None)
