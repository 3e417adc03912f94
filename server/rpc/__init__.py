"""The gRPC services for node controllers and applications, and the threads that they feed.

`node_service` and `app_service` serve the two kinds of streams. `nodelist` and `exit_collector` are
the threads that watch heartbeats and collect exits of processes. Reports of peers are checked here
before they become events.
"""
