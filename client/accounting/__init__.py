"""Accounting of jobs and actions of users: ``jobacct``, ``pliant stats`` and ``pliant audit``."""
