"""Worlds of other users, which the root helper of the node starts and ends."""
