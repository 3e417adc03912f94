"""Threads, clocks, logging and rate limits of the server. Nothing here knows about jobs."""
