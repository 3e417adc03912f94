"""Everything that concerns MPI itself: membership in the job, connecting, disconnecting, waiting.

Code here knows communicators and ranks, but neither the data of a program nor the server. MPI is
only called from the main thread.
"""
