"""The daemon around the core: sockets, threads, the job database, the negotiator's wire side.

Threads here turn I/O into events for ``pliant.core`` and its commands into I/O. Decisions do not
live here: what a job may do is the core's, who gets which processors is a strategy's.

May import: the standard library, grpc, SQLAlchemy, Alembic and other base dependencies,
``pliant.core``, ``pliant.strategies``, ``pliant.protos``.
"""
