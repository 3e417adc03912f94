"""The gRPC services for node controllers and applications, and the threads they feed.

`node_service` and `app_service` are the two streams. `nodelist` and `remove` are the threads that
watch heartbeats and collect the exits of processes. Reports of peers are checked here before they
become events.
"""
