"""Configuration files of daemons: whatever they hold, there is an answer, and soon."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.protos.daemons.config_files import MAX_BYTES, ConfigFileError, read_config


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "config.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_keys_and_values_are_read(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, "a: 1\nb: {c: [d, 2.5]}\n")) == {
        "a": 1,
        "b": {"c": ["d", 2.5]},
    }
    assert read_config(written(tmp_path, "")) == {}
    assert read_config("/dev/null") == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: " + "[" * 40 + "]" * 40, "line 1: nested deeper"),
        ("a: " + "[" * 20_000, "nested deeper"),
        ("".join(" " * n + "a:\n" for n in range(40)), "nested deeper"),
        ('a: "x\\0y"', "a: a zero byte"),
        ('a: {b: ["\\ud800"]}', "a.b: U\\+D800 is half of a character"),
        ('"\\udfff": 1', "a key: U\\+DFFF"),
        ("a: &x [1]\nb: *x", "line 2: an alias"),
        ("a: 2001-99-99", "not YAML: month"),
        ("a: " + "9" * 5000, "not YAML: .*digits"),
        ("a: [", "not YAML: "),
        ("a: 1\nb: 2\n'a': 3\n", "line 3: the key a stands in line 1 already"),
        ("x:\n  - {b: 1, b: 2}\n", "line 2: the key b stands in line 2 already"),
        ("- a", "expected keys and values, got list"),
        (b"\xff\xfe\xfd", "not YAML: byte 0 is not UTF-8"),
        (b"a: '" + b"x" * MAX_BYTES + b"'", "larger than"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(ConfigFileError, match=says) as caught:
        read_config(written(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["/dev/zero", "/", "/nowhere/at/all", "a\0b"])
def test_what_is_no_file_is_refused_at_once(path: str) -> None:
    with pytest.raises(ConfigFileError):
        read_config(path)


def test_a_pipe_is_read_to_its_end() -> None:
    reads, writes = os.pipe()

    def write() -> None:
        with open(writes, "w") as file:
            file.write("a: 1\n")
            file.flush()
            file.write("b: 2\n")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert read_config(f"/dev/fd/{reads}") == {"a": 1, "b": 2}
    finally:
        thread.join()
        os.close(reads)


def test_a_pipe_that_nobody_writes_to_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pliant.protos.daemons.config_files._PIPE_TIMEOUT_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    writes = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        with pytest.raises(ConfigFileError, match="nothing was written"):
            read_config(tmp_path / "pipe")
    finally:
        os.close(writes)


@given(st.text() | st.binary())
def test_whatever_is_in_it_there_is_an_answer(
    tmp_path_factory: pytest.TempPathFactory, text: str | bytes
) -> None:
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    with suppress(ConfigFileError):
        assert isinstance(read_config(written(tmp_path_factory.getbasetemp(), content)), dict)
