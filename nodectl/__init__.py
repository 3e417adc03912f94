"""The per-node controller: starts, watches and ends real processes on one node.

`controller` carries out the server's orders, and `launcher` forks the shims for it. A shim is the
process that starts the ranks of one world (one ``MPI_COMM_WORLD``) on this node, serves PMI-1 to
them and records their exits; its code is in `shim`. `root_helper` starts the shims of other users'
jobs. `certified` connects with a certificate, and `host` reads and sets what the kernel knows:
CPUs, memory, control groups, processes. `world_folder` is the record of a world on disk, and
`daemon` is the command ``pliant nodectl``. Only the launcher, the shim and the root helper fork,
and they never load grpc. No scheduling lives here: a controller carries out orders and reports what
happened.

May import: the standard library, grpc and other base dependencies, ``pliant.core``,
``pliant.protos``, ``pliant.faults``. Never ``pliant.server``, nor SQLAlchemy.
"""
