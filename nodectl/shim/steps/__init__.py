"""Steps: programs that a script starts on processors of its job, on all nodes of the job.

`manager` is the place to start: it takes requests from `request_socket`, chooses the processors of
each step, and starts the ranks. `size_policy` decides which malleable step gets which size, and
`resizer` carries out its resizes. `shim_messenger` connects the shims of a job.
"""
