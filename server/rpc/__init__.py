"""The gRPC services for node controllers and applications, and the threads that they feed.

`node_service` and `app_service` serve the two kinds of streams. `node_list` has the thread that
watches heartbeats, `exit_collector` the thread that collects exits of processes. Reports of peers
are checked here before they become events.
"""
