"""Threads, clocks, logging and rate limits of the daemon; nothing here knows about jobs."""
