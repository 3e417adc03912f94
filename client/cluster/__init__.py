"""A cluster on this machine: ``pliant up`` and ``pliant down``, its daemons and their processes."""
