"""Import mpi4py before any other module, and explain what to do if it finds no MPI library."""

from pliant.appkit.appkit_errors import NoMPILibrary

try:
    from mpi4py import MPI
except RuntimeError as error:
    if "cannot load MPI library" not in str(error):
        raise
    # The paths that mpi4py tried are left out: they do not help to install a library.
    raise NoMPILibrary(
        "mpi4py finds no MPI library: install one with `pip install 'pliant[mpich]'`, "
        "or load your own MPI (as with `module load mpich`)"
    ) from None

__all__ = ["MPI"]
