"""Threads, clocks, logging, sockets and errors of the server. Nothing here knows about jobs."""
