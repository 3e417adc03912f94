"""Staged files: what a job brings to nodes without a shared folder, and what it brings back.

Clients, nodes and the server pack and unpack them with the same code. It never trusts an archive.
"""
