"""Rank 0's talk with the server: the stream, negotiations, requests, suspensions. No MPI.

`coordinator` is the state that the main thread, the stream's threads and the rendezvous share.
`messages` are the plain values; only `wire` turns them into protobuf.
"""
