"""The rank that stands for the server in messages between shims, which start ranks on nodes."""

#: Stands for the server in `Relay.from_rank` and `Relay.to_rank`. No world is so large.
SERVER_RANK = (1 << 32) - 1
