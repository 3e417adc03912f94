"""The controller of a node: orders come in, reports go out. asyncio and gRPC.

`controller` carries out orders, `server_stream` keeps the connection to the server, `world` is
what is known of one job's processes. The controller never forks; it asks the launcher for shims.
"""
