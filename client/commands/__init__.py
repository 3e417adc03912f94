"""The commands of users, one module for each: ``jobsub``, ``jobstat``, ``jobctl`` and others.

A command parses its arguments, asks the server through `pliant.client.connection` and prints
through `pliant.client.terminal.output`.
"""
