"""Authentication of peers: the cluster secret, tokens of applications, the opening handshake.

What a user may do is decided in `pliant.server.users.authorisation`.
"""
