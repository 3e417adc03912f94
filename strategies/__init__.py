"""Scheduling strategies: an immutable snapshot in, a plan out.

A strategy decides which jobs start, shrink, expand or wait; it never carries a decision out. Each
is deterministic, breaks ties by explicit keys and cites the section of the paper it follows.
Other packages add strategies through the entry-point group ``pliant.strategies``.

May import: the standard library and ``pliant.core``.
"""
