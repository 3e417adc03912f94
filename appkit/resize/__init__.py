"""Carrying a resize out: join, check, move the data, commit or roll back. Collective.

`executor` is the sequence of steps; read it first. `joiner` is the side of a joining rank,
`prefetch` and `preallocate` prepare a resize while the program computes.
"""
