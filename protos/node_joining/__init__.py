"""Join tokens, and the messages with which a host becomes a node of a cluster.

`join_token` is the text that the administrator copies to the host. `token_store` keeps what the
server needs to redeem it. `messages` are the lines that the host and the server send each other.
"""
