"""Plan which process sends which data to which other one, and send them.

`layout`, `cyclic_layout`, `splitting` and `plan` are arithmetic without MPI. `exchange` and
`packed` carry a plan out with messages of bounded size. This package knows no handles and no jobs.
"""
