"""Connections of users: accept them, read their requests, and write the answers.

`user_socket_server` is the accept thread, `connection` reads the requests of one user, and
`tagged_requests` holds those that are carried out at the same time.
"""
