"""`PliantExecutor`: a pool of workers that are jobs, with the interface of ``concurrent.futures``.

`executor` is the interface of users, `pool` has the tasks and the connections to workers, and
`worker_jobs` submits and watches the jobs. `worker` is the program of these jobs. `wire` has their
messages, and `listener` and `authentication` the connections.
"""
