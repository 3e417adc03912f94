"""Serve the users' socket: read submissions, queries and commands, carry them out, answer them.

`connections` accepts users and reads their requests, `operation_table` maps each request to the
method that carries it out, and `submission` checks and stores submitted jobs. What a user may do is
decided in `pliant.server.authorisation`.
"""
