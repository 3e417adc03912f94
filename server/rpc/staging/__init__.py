"""Transfers of staged files between the server and nodes."""
