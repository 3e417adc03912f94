"""Forecasts: the queue under other strategies, and the answers of several servers about a job.

`what_if_command` is ``pliant what-if``. `jobsub_queries` has ``--query``, ``--what-if`` and
``--bid`` of ``jobsub``, for which `choose_server_by_bid` asks several servers.
"""
