"""Serve the users' socket: read submissions, queries and commands, carry them out, answer them.

`user_socket_server` is the accept thread, `connection` reads the requests of one user,
`operation_table` maps each request to the method that carries it out, and `submission_schema`
checks a submitted job. What a user may do is decided in `pliant.server.authorisation`.
"""
