"""What would happen: the queue under other strategies, and the offers of several servers.

`what_if_command` is ``pliant what-if``. `jobsub_queries` has ``--query``, ``--what-if`` and
``--bid`` of ``jobsub``, for which `choose_server_by_bid` asks several servers.
"""
