"""What the server and shims agree on about the messages that pass between shims."""

#: Stands for the server in `Relay.from_rank` and `Relay.to_rank`. No world is so large.
SERVER_RANK = (1 << 32) - 1
