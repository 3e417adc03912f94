"""Transfers of staged files between the server and nodes; see `pliant.server.staging`."""
