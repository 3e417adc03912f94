"""What a malleable MPI application imports: safe points, data that follow a resize, requests.

The session with the server, the join and leave of processes and the redistribution of registered
data live here. It runs inside other people's programs: it never configures logging, never installs
a signal handler unasked and loads grpc only in the coordinator, only when there is a server.

May import: the standard library, mpi4py, numpy, grpc (lazily), ``pliant.core``, ``pliant.protos``.
Never SQLAlchemy, click or rich.
"""
