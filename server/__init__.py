"""The server daemon: sockets, threads and the job database around the core.

The threads of the server turn I/O into events for ``pliant.core``, and carry out the commands that
the core returns. Nothing is decided here. The core decides what may happen to a job, and a strategy
decides which job gets which processors.

The packages, in the order in which they may import each other: `support` and `security`, `registry`
(tables in memory), `database`, `execution` (the thread that owns the core), `rpc` (node controllers
and applications), `users` (the users' socket). `server` builds all parts, `daemon` is the command.

May import: the standard library, grpc, SQLAlchemy, Alembic and other base dependencies,
``pliant.core``, ``pliant.strategies``, ``pliant.protos``.
"""
