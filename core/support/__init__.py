"""General helpers of the standard-library kind: argument parsers, lazy imports, fast dataclasses.

Nothing here knows about jobs or nodes. Every part of Pliant may import it.
"""
