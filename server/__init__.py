"""The server daemon: sockets, threads and the job database around the core.

The threads of the server turn I/O into events for ``pliant.core``, and carry out the commands that
the core returns. Nothing is decided here. The core decides what may happen to a job, and a strategy
decides which job gets which processors.

The packages, in the order in which they may import each other: `support`, `authentication` (who a
peer is), `registry` (tables in memory), `authorisation` (what a user may do), `database`,
`execution` (the thread that owns the core), `login_hosts`, `rpc` (node controllers and
applications), `user_requests` (the users' socket), `node_joining` (hosts that become nodes).
`server` builds all parts, `daemon` is the command.

May import: the standard library, grpc, SQLAlchemy, Alembic and other base dependencies,
``pliant.core``, ``pliant.strategies``, ``pliant.protos``.
"""
