"""The command line and the Python client: ``jobsub``, ``jobstat``, ``jobdel``, ``jobctl``, ...

Commands parse, ask the server and print through one output interface (table, json, quiet). They
are started thousands of times, so grpc, rich and everything else that is slow to load is imported
where it is used. No scheduling and no database access live here.

May import: the standard library, grpc and rich (lazily), ``pliant.core``, ``pliant.protos``.
Never ``pliant.server``.
"""
