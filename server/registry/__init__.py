"""Tables in memory about jobs, worlds, processors and nodes, read without asking the core.

`status_cache` answers queries of users. `mpi_worlds` and `processor_nodes` tell which rank is on
which host.
"""
