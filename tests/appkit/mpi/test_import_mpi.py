"""Without an MPI library a program ends with what helps, not with a list of paths."""

from __future__ import annotations

from testkit import run_python

WITHOUT = """
import sys, types
sys.modules["mpi4py"] = fake = types.ModuleType("mpi4py")
def missing(name):
    raise RuntimeError("{text}\\nlibmpi.so: cannot open shared object file")
fake.__getattr__ = missing
import pliant.appkit
"""


def test_a_missing_library_is_named_with_the_remedy() -> None:
    done = run_python("-c", WITHOUT.format(text="cannot load MPI library"), check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "pliant.appkit.appkit_errors.NoMPILibrary: mpi4py finds no MPI library: "
    )
    assert "pip install 'pliant[mpich]'" in last
    assert "libmpi.so" not in done.stderr


def test_another_fault_is_left_alone() -> None:
    done = run_python("-c", WITHOUT.format(text="bad ABI"), check=False)
    assert "RuntimeError: bad ABI" in done.stderr
