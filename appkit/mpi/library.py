"""Imported before everything else here: where mpi4py finds no MPI library, it says what helps."""

from pliant.appkit.errors import NoMPILibrary

try:
    from mpi4py import MPI
except RuntimeError as error:
    if "cannot load MPI library" not in str(error):
        raise
    # Without the paths that were tried: what helps is to have one, wherever it is.
    raise NoMPILibrary(
        "mpi4py finds no MPI library: install one with `pip install 'pliant[mpich]'`, "
        "or load your own MPI (as with `module load mpich`)"
    ) from None

__all__ = ["MPI"]
