"""The controller of a node: carries out the server's orders and reports what happened.

`controller` carries out orders, `server_connection` connects to the server, `node_worlds` handles
the messages and the ends of shims, and `world_state` is the state of one job's processes on this
node. The controller uses asyncio and gRPC, and never forks: it asks the launcher for shims.
"""
