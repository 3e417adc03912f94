"""Wheels that are small, facts of hosts and free ports, for tests of deployments."""
