"""What jobs used, and what users did: ``jobacct``, ``pliant stats`` and ``pliant audit``."""
