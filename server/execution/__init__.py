"""The thread that owns the core, and the modules that carry out its commands.

`core_loop` takes events, calls the core, commits (`committer`) and then has the commands carried
out (`command_execution`). `planner` runs the strategy. The services in `pliant.server.rpc` and
`pliant.server.user_requests` pass events in. Nothing here imports them.
"""
