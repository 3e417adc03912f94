"""Small ELF files that need libraries, made without a compiler."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

_HEADER, _SEGMENT, _ENTRY = 64, 56, 16
_NEEDED, _STRTAB, _RUNPATH = 1, 5, 29
_BASE = 0x400000


def elf_bytes(needed: Sequence[str], runpath: str = "") -> bytes:
    """Return a 64-bit file with a dynamic section, which cannot be executed."""
    names, places = b"\0", []
    for text in [*needed, runpath]:
        places.append(len(names))
        names += text.encode() + b"\0"
    start = _HEADER + 2 * _SEGMENT
    entries = [(_NEEDED, place) for place in places[:-1]]
    entries += [(_RUNPATH, places[-1])] if runpath else []
    strings = start + (len(entries) + 2) * _ENTRY
    entries += [(_STRTAB, _BASE + strings), (0, 0)]
    size = strings + len(names)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, _HEADER, 0, 0, 64, _SEGMENT, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, _BASE, _BASE, size, size, 4096)
    length = len(entries) * _ENTRY
    dynamic = struct.pack("<IIQQQQQQ", 2, 4, start, _BASE + start, 0, length, length, 8)
    return header + load + dynamic + b"".join(struct.pack("<qQ", *e) for e in entries) + names


def write_elf(path: Path, *needed: str, runpath: str = "") -> Path:
    """Write such a file, with the permission to execute it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(elf_bytes(needed, runpath))
    path.chmod(0o755)
    return path
