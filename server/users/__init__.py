"""The socket of users: submissions, queries and commands, and who may use them.

`accept` reads requests, `authorisation` decides whether a user may make them, `operation_table`
maps each to the method that carries it out, and `submission_schema` checks a submitted job.
"""
