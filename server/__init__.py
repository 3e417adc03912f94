"""The server daemon: sockets, threads and the job database around the core.

The threads of the server turn I/O into events for ``pliant.core``, and carry out the commands that
the core returns. Nothing is decided here. The core decides what may happen to a job, and a strategy
decides which job gets which processors.

The packages, the lowest first: `support`, `authentication` (who a peer is), `checkpoints` (their
folders), `registry` (tables in memory), `authorisation` (what a user may do), `staging` (files of
jobs), `database`, `backup`, `execution` (the thread that owns the core), `login_hosts`,
`notifications` (mails about jobs), `watch` (subscriptions), `rpc` (node controllers and
applications), `user_requests` (the users' socket), `node_joining` (hosts that become nodes).
`server` builds all parts, `daemon` is the command.

May import: the standard library, grpc, SQLAlchemy, Alembic and other base dependencies,
``pliant.core``, ``pliant.strategies``, ``pliant.protos``, ``pliant.faults``.
"""
