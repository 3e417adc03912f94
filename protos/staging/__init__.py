"""Staged files: the files that are sent with a job, and the outputs that are returned.

Clients, nodes and the server pack and unpack them with this code. Every archive is checked when it
is unpacked, because users can make archives themselves.
"""
