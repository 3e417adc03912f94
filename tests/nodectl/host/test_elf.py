"""The libraries that programs need, of good and of damaged files."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest

from elfkit import elf_bytes, write_elf
from pliant.nodectl.host.elf import ElfError, find_needed, read_dynamic


def test_the_needed_libraries_in_their_order(tmp_path: Path) -> None:
    path = write_elf(tmp_path / "p", "libb.so.1", "liba.so", runpath="$ORIGIN/lib:/opt/${ORIGIN}")
    found = read_dynamic(str(path))
    assert found.needed == ("libb.so.1", "liba.so")
    assert found.folders == (f"{tmp_path}/lib", f"/opt/{tmp_path}")


def test_a_program_of_this_host_needs_its_c_library() -> None:
    names = [name for name, _ in find_needed(sys.executable, "")]
    assert any(name.startswith("libc.") for name in names)


@pytest.mark.parametrize(
    "content", [b"", b"\x7f", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF" + bytes(60)]
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ElfError):
        read_dynamic(str(path))


def test_no_damage_raises_anything_else(tmp_path: Path) -> None:
    whole, path = elf_bytes(["libmpi.so.40"], "/lib"), tmp_path / "file"
    for place in range(4, len(whole)):
        for damaged in (whole[:place], whole[:place] + b"\xff" + whole[place + 1 :]):
            path.write_bytes(damaged)
            with suppress(ElfError):
                read_dynamic(str(path))


def test_libraries_are_searched_like_the_dynamic_linker_does(tmp_path: Path) -> None:
    program = write_elf(tmp_path / "p", "liba.so", "libgone.so", runpath="$ORIGIN/lib")
    write_elf(tmp_path / "lib" / "liba.so", "libdeep.so")
    write_elf(tmp_path / "other" / "libdeep.so", "liba.so")
    found = list(find_needed(str(program), str(tmp_path / "other")))
    assert found == [
        ("liba.so", str(tmp_path / "lib" / "liba.so")),
        ("libgone.so", ""),
        ("libdeep.so", str(tmp_path / "other" / "libdeep.so")),
    ]
    assert list(find_needed(str(tmp_path / "missing"), "")) == []
