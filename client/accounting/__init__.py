"""Accounting of jobs and actions of users: ``jobacct``, ``pliant stats`` and ``pliant audit``.

`job_usage` computes wait, efficiency and processor-seconds of jobs from the server's phases.
``pliant share`` and ``pliant accounting`` are in `pliant.client.commands.usage`.
"""
