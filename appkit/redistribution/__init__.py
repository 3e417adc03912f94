"""Which process sends what to whom, and the messages that carry it.

`layout` and `plan` are arithmetic without MPI. `ranges` and `packed` carry a plan out with messages
of bounded size. Handles and jobs are not known here.
"""
