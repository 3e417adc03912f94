"""Backups of the server: the job database, the cluster's identity and the configuration.

`create` writes a backup, `restore` reads one, and `backup_commands` has the two commands. A damaged
database without a backup is salvaged by `pliant.server.database.salvage`.
"""
