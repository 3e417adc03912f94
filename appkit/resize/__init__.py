"""Carry out a resize: join, check, move the data, commit or roll back. Collective.

`executor` has the sequence of steps; read it first. `safe_point` chooses what happens at each safe
point. `joiner` is the side of a joining rank. `prefetch` and `preallocate` prepare a resize while
the program computes.
"""
