"""The thread that owns the core, and what carries its commands out.

`execute` takes events, calls the core, commits (`committer`) and then dispatches the commands
(`dispatch`). `planner` runs the strategy. Services of `pliant.server.rpc` and `pliant.server.users`
pass events in; nothing here imports them.
"""
