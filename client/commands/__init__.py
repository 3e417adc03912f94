"""The commands of users, one module for each: ``jobsub``, ``jobstat``, ``jobctl`` and others.

A command parses, calls `pliant.client.connection` and prints through
`pliant.client.terminal.output`.
"""
