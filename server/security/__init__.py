"""Who a peer is: the cluster's secret, the tokens of applications, the opening handshake.

What a user may do is decided in `pliant.server.users.authorisation`.
"""
