"""The data of the domain: jobs, nodes, resizes, checkpoints, timers, and what strategies see.

`jobs` is the place to start. `lifecycle` and `negotiation` are the two tables of states: the life
of a job and the course of a negotiation. Nothing here changes the state of the whole machine;
that is done in `pliant.core.transitions` and `pliant.core.handlers`.
"""
