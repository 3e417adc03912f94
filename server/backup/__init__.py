"""Backups of the server: the job database, the cluster's identity and the configuration."""
