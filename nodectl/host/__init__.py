"""Interfaces of the kernel: /proc, control groups, shared memory, limits; standard library only.

`cpus` and `containment` map slots to CPUs, `cgroup` limits and finds the processes of a shim,
`memory_limit`, `node_memory` and `oom` are about memory, `procfs` reads processes. `mpi_libraries`
recognises the MPI library of a program. Nothing here knows the server.
"""
