"""Malleable applications, experiments and strategies to read, run and copy.

Examples use the public interface as any user would: nothing here is imported by another part, and
nothing here reaches into a private module.

May import: the standard library, mpi4py, numpy, ``pliant.appkit``, ``pliant.core``,
``pliant.strategies``, ``pliant.client``.
"""
