"""Shared by all daemons: configuration and log files, private folders, unix sockets."""
