"""Runs of experiments: in parallel processes, with results that are kept on disk.

`measuring` runs the simulations without a stored result, `pool` and `worker` are the processes,
`tasks` is one run as data, and `results_store` keeps the results.
"""
