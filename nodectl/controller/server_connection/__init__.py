"""The connection to the server: which server is accepted, its stream, and the node's lease.

`server_links` finds and authenticates the server, `server_stream` keeps the stream of orders and
reports, and `registration` describes this node to the server. `confirmed_heartbeat` is the node's
side of its lease. `last_server_generation` makes the node reject a server that is older than the
last one. Orders are carried out by `pliant.nodectl.controller.controller`.
"""
