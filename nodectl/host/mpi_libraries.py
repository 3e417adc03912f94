"""Recognise MPI libraries by name, in programs and in running processes, and find their launchers.

The shim serves PMI-1, which MPICH and the libraries with its ABI use. Ranks of Open MPI need the
launcher of Open MPI: started directly, each of them is rank 0 of a world of its own, and all of
them end with success. No setting of Open MPI 4.1 or 5.0 prevents that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pliant.nodectl.host import elf, procfs

OPEN_MPI, MPICH = "Open MPI", "MPICH"

# Open MPI has used the numbers 20 (versions 2 and 3) and 40 (4 and 5). MPICH, Intel MPI and others
# with the common ABI use 12, and libraries of the standard's ABI are named libmpi_abi.
_NAMES = (
    (re.compile(r"(libmpi\.so\.(20|40)|libopen-rte\.so)(\.|$)"), OPEN_MPI),
    (re.compile(r"(libmpi\.so\.12|libmpich\.so(\.\d+)?|libmpi_abi\.so(\.\d+)?)(\.|$)"), MPICH),
)

#: A process with one of these variables was started by Open MPI's own launcher.
_LAUNCHED = (b"OMPI_COMM_WORLD_SIZE=", b"PMIX_RANK=")

#: Names that only the launcher of Open MPI has. Its other names, such as ``mpirun``, it shares with
#: other launchers.
_LAUNCHERS = ("mpirun.openmpi", "orterun")
#: A program of Open MPI. The ``mpirun`` next to it is that of Open MPI.
_MARK = "ompi_info"


@dataclass(frozen=True, slots=True)
class MpiLibrary:
    """An MPI library that a program needs or has loaded."""

    #: ``OPEN_MPI`` or ``MPICH``.
    family: str
    #: The name of its file, such as ``libmpi.so.40``.
    name: str
    #: Where it is; empty if it was not found.
    path: str = ""

    @property
    def speaks_pmi(self) -> bool:
        """Return whether ranks with this library can be served by PMI-1."""
        return self.family == MPICH

    def __str__(self) -> str:
        return f"{self.family} ({self.name})"


def recognise(name: str, path: str = "") -> MpiLibrary | None:
    """Return the MPI library to which a file name belongs; None if it belongs to no MPI library.

    Args:
        name: the file name, such as ``libmpi.so.40``.
        path: the path of the file, for the result; empty if not known.
    """
    family = next((family for pattern, family in _NAMES if pattern.match(name)), None)
    return MpiLibrary(family, name, path) if family is not None else None


def linked_library(program: str, environment: Mapping[str, str]) -> MpiLibrary | None:
    """Return the MPI library that a program is linked with, directly or through libraries.

    None if there is none, as for scripts and interpreters, or if the program cannot be read.

    Args:
        program: path of the program.
        environment: the environment in which the program will run.
    """
    for name, path in elf.find_needed(program, environment.get("LD_LIBRARY_PATH", "")):
        if (found := recognise(name, path)) is not None:
            return found
    return None


def loaded_library(pid: int) -> MpiLibrary | None:
    """Return the MPI library that a process has loaded; None if it has loaded none.

    If it has loaded several, one that cannot use PMI-1 comes first.
    """
    paths = {line.split(maxsplit=5)[-1] for line in procfs.maps(pid) if b".so" in line}
    libraries = [recognise(os.path.basename(path), path) for path in map(os.fsdecode, paths)]
    found = [library for library in libraries if library is not None]
    return min(found, key=lambda library: (library.speaks_pmi, library.name), default=None)


def unlaunched_library(pid: int) -> MpiLibrary | None:
    """Return an MPI library without PMI-1 that a process, or a descendant of it, has loaded.

    None if there is none. None also if the launcher of the library has started the process that
    loaded it, for example because a rank runs ``mpirun``.
    """
    for process in (pid, *procfs.descendants(pid)):
        library = loaded_library(process)
        if library is None or library.speaks_pmi:
            continue
        if not any(entry.startswith(_LAUNCHED) for entry in procfs.environment(process)):
            return library
    return None


def find_launcher(library: MpiLibrary, search_path: str) -> str:
    """Return the path of the launcher of Open MPI; empty if it is not installed.

    Args:
        library: the library with which a program is linked. The launcher next to it is preferred.
        search_path: folders of programs, as in the variable ``PATH``.
    """
    if library.family != OPEN_MPI:
        return ""
    for folder in [*_folders_near(library.path), *search_path.split(":")]:
        names = [*_LAUNCHERS]
        if os.path.exists(os.path.join(folder, _MARK)):
            names.append("mpirun")
        for name in names:
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK) and os.path.isfile(path):
                return path
    return ""


def _folders_near(path: str) -> Iterator[str]:
    """Yield the ``bin`` folders of the installation that contains a library."""
    folder = os.path.dirname(path)
    while len(folder) > 1:
        yield os.path.join(folder, "bin")
        folder = os.path.dirname(folder)
