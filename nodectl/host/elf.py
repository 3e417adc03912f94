"""Read which shared libraries an ELF program needs, and find them as the dynamic linker does.

Only what is needed to recognise a library by its name: the entries DT_NEEDED, DT_RPATH and
DT_RUNPATH of the dynamic section (System V ABI, chapter 5), and the usual folders. The cache of
ldconfig is not read.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_MAGIC = b"\x7fELF"
_IDENTITY_BYTES = 16
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 15, 29

#: Entries of the dynamic section that are read; real programs have fewer than 100.
_MAX_ENTRIES = 4096
_MAX_NAME_BYTES = 4096

#: Folders that the dynamic linker searches last.
DEFAULT_FOLDERS = (
    "/lib64",
    "/usr/lib64",
    f"/lib/{os.uname().machine}-linux-gnu",
    f"/usr/lib/{os.uname().machine}-linux-gnu",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
)


#: Libraries of compilers and of the system, which need only each other.
_RUNTIME = (
    "ld-linux",
    "libc.",
    "libdl.",
    "libgcc_s.",
    "libgfortran.",
    "libm.",
    "libpthread.",
    "libquadmath.",
    "librt.",
    "libstdc++.",
    "libz.",
)


class ElfError(Exception):
    """A file is damaged, or no ELF file."""


@dataclass(frozen=True, slots=True)
class Dynamic:
    """The libraries and search folders in the dynamic section of a program or library."""

    #: Names of the needed libraries, in their order.
    needed: tuple[str, ...] = ()
    #: Folders in which they are searched first.
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Layout:
    """The formats of file header, program header and dynamic entry in 32-bit or 64-bit files."""

    header: str
    segment: str
    entry: str
    #: Places of type, offset, address and size in the file among the fields of a program header.
    fields: tuple[int, int, int, int]


_LAYOUTS = {
    1: _Layout("HHIIIIIHHHHHH", "IIIIIIII", "iI", (0, 1, 2, 4)),
    2: _Layout("HHIQQQIHHHHHH", "IIQQQQQQ", "qQ", (0, 2, 3, 5)),
}


def read_dynamic(path: str) -> Dynamic:
    """Return the libraries that an ELF file needs; none if it is linked statically.

    Raises:
        ElfError: the file is damaged, or no ELF file.
        OSError: the file cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if os.fstat(handle).st_size < _IDENTITY_BYTES or os.pread(handle, 4, 0) != _MAGIC:
            raise ElfError("no ELF file")
        with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as data:
            return _parse(data, os.path.dirname(os.path.realpath(path)))
    except (struct.error, ValueError, OverflowError) as error:
        raise ElfError(f"damaged: {error}") from error
    finally:
        os.close(handle)


def find_needed(path: str, library_path: str, *, max_files: int = 64) -> Iterator[tuple[str, str]]:
    """Yield the libraries that a program needs, directly or through others, nearest first.

    Args:
        path: the program.
        library_path: the variable ``LD_LIBRARY_PATH`` of its environment.
        max_files: the largest number of files to read.

    Yields:
        The name of a library, and its path; the path is empty if it was not found.
    """
    extra = [folder for folder in library_path.split(":") if folder]
    seen: set[str] = set()
    level = [path]
    while level and max_files > 0:
        following = []
        for file in level[:max_files]:
            try:
                dynamic = read_dynamic(file)
            except (ElfError, OSError):
                continue
            folders = [*extra, *dynamic.folders, *DEFAULT_FOLDERS]
            for name in dynamic.needed:
                if name not in seen:
                    seen.add(name)
                    found = _find(name, folders)
                    yield name, found
                    if found and not name.startswith(_RUNTIME):
                        following.append(found)
        max_files -= len(level)
        level = following


def _find(name: str, folders: Sequence[str]) -> str:
    if "/" in name:
        return name if os.path.exists(name) else ""
    paths = (os.path.join(folder, name) for folder in folders)
    return next((path for path in paths if os.path.exists(path)), "")


def _parse(data: mmap.mmap, origin: str) -> Dynamic:
    """Parse the dynamic section of an ELF file.

    Args:
        data: the file.
        origin: its folder, which replaces ``$ORIGIN``.
    """
    layout = _LAYOUTS.get(data[4])
    order = {1: "<", 2: ">"}.get(data[5])
    if layout is None or order is None:
        raise ElfError("unknown class or byte order")
    header = struct.unpack_from(order + layout.header, data, _IDENTITY_BYTES)
    first, size, count = header[4], header[8], header[9]
    segments = [
        struct.unpack_from(order + layout.segment, data, first + number * size)
        for number in range(count)
    ]
    kind, offset, address, length = layout.fields
    loaded = [s for s in segments if s[kind] == _PT_LOAD]
    needed: list[int] = []
    folders: list[int] = []
    strings = 0
    for segment in segments:
        if segment[kind] != _PT_DYNAMIC:
            continue
        for tag, value in _entries(data, order + layout.entry, segment[offset], segment[length]):
            if tag == _DT_NEEDED:
                needed.append(value)
            elif tag in (_DT_RPATH, _DT_RUNPATH):
                folders.append(value)
            elif tag == _DT_STRTAB:
                strings = value
    table = next(
        (
            strings - s[address] + s[offset]
            for s in loaded
            if s[address] <= strings < s[address] + s[length]
        ),
        strings,
    )
    paths = ":".join(_text(data, table + place) for place in folders)
    paths = paths.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
    return Dynamic(
        tuple(_text(data, table + place) for place in needed),
        tuple(folder for folder in paths.split(":") if folder),
    )


def _entries(data: mmap.mmap, form: str, start: int, length: int) -> Iterator[tuple[int, int]]:
    size = struct.calcsize(form)
    for number in range(min(length // size, _MAX_ENTRIES)):
        tag, value = struct.unpack_from(form, data, start + number * size)
        if tag == _DT_NULL:
            return
        yield tag, value


def _text(data: mmap.mmap, place: int) -> str:
    end = data.find(b"\0", place, place + _MAX_NAME_BYTES)
    if not 0 <= place < len(data) or end < 0:
        raise ElfError("a name is outside of the file")
    return os.fsdecode(data[place:end])
