"""The connection of rank 0 to the server: stream, negotiations, requests, suspensions. No MPI.

`coordinator` holds the state that the main thread, the threads of the server stream and the
rendezvous share; read it first. `messages` has the plain values; only `protobuf_codec` turns them
into protobuf.
"""
