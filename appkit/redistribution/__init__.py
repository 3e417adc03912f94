"""Plan which process sends which data to which other one, and send them.

`layout`, `cyclic_layout`, `block_partitioning` and `transfer_plan` are arithmetic without MPI.
`range_exchange` and `packed_exchange` carry a plan out with messages of bounded size. This package
knows no handles and no jobs.
"""
