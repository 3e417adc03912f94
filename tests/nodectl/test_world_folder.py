"""The folder of a world."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.world_folder import (
    WORLD_NAME,
    SpooledExit,
    StartRequest,
    WorldFolder,
    to_bytes,
    to_text,
    world_folders,
)


def request(world: str = "w1") -> StartRequest:
    return StartRequest(
        world=world,
        job=1,
        run=2,
        resize=3,
        type="mpi",
        size=4,
        ranks=[(0, 10), (1, 11)],
        argv=["a", to_text(b"\xff")],
        environment={"A": to_text(b"\x80=")},
        directory="/",
        stdout="/out",
    )


@pytest.fixture
def spool(tmp_path: Path) -> WorldFolder:
    return WorldFolder.create(tmp_path, request(), b"token", b"n1:2\n")


def test_an_order_is_read_as_it_was_written(spool: WorldFolder) -> None:
    assert spool.request() == request()
    assert spool.token.read_bytes() == b"token"
    assert spool.token.stat().st_mode & 0o777 == 0o400
    assert spool.directory.stat().st_mode & 0o777 == 0o700
    spool.remove_secrets()
    spool.remove_secrets()
    assert not spool.token.exists()
    assert not spool.nodes.exists()


def test_a_world_has_one_shim(spool: WorldFolder) -> None:
    assert spool.shim() is None
    first = ProcessIdentity("boot", 10, 20)
    assert spool.claim(first)
    assert not spool.claim(ProcessIdentity("boot", 11, 21))
    assert spool.shim() == first


def test_ends_are_read_back_and_the_first_one_counts(spool: WorldFolder) -> None:
    ends = [SpooledExit(0, 10, 1, 0, "why\nso", 1.5), SpooledExit(1, 11, 0, 9, "", 2.5)]
    spool.save_exits(ends)
    spool.save_exits([SpooledExit(0, 10, 0, 0, "", 9.0)])
    assert spool.exits() == {0: ends[0], 1: ends[1]}


def test_exits_are_on_the_disk_before_they_are_reported(
    spool: WorldFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    write, sync, close = os.write, os.fdatasync, os.close

    def spied(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def told(*arguments: Any) -> Any:
            done.append(name)
            return call(*arguments)

        return told

    monkeypatch.setattr(os, "write", spied("write", write))
    monkeypatch.setattr(os, "fdatasync", spied("sync", sync))
    monkeypatch.setattr(os, "close", spied("close", close))
    spool.save_exits([SpooledExit(0, 10, 1, 0, "", 1.5)])
    assert done == ["write", "sync", "close"]


def test_a_line_that_was_cut_is_no_line(spool: WorldFolder) -> None:
    spool.save_exits([SpooledExit(0, 10, 1, 0, "", 1.5)])
    with open(spool.directory / "exits", "a") as file:
        file.write('{"rank": 1, "proc')
    assert list(spool.exits()) == [0]


def test_ranks_are_noted(spool: WorldFolder) -> None:
    assert spool.ranks() == {}
    spool.save_ranks([(0, ProcessIdentity("b", 5, 6)), (1, ProcessIdentity("b", 7, 8))])
    assert spool.ranks() == {0: ProcessIdentity("b", 5, 6), 1: ProcessIdentity("b", 7, 8)}


@pytest.mark.usefixtures("spool")
def test_half_an_order_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".new-w2").mkdir()
    (tmp_path / ".new-w2" / "token").touch()
    (tmp_path / "file").touch()
    assert [each.directory.name for each in world_folders(tmp_path)] == ["w1"]
    assert not (tmp_path / ".new-w2").exists()


@given(st.binary())
def test_bytes_survive_as_text(value: bytes) -> None:
    assert to_bytes(json.loads(json.dumps(to_text(value)))) == value


@pytest.mark.parametrize("name", ["", ".", "..", ".new-a", "a/b", "a b", "a\n", "ä", "x" * 201])
def test_names_that_are_no_folders(name: str) -> None:
    assert not WORLD_NAME.fullmatch(name)
