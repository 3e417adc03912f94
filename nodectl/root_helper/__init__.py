"""The root helper of a node: starts shims as the users of their jobs, on signed orders only.

It is the only part of Pliant that runs as root. Read its modules in this order: `config` (files
that root owns), `request_verification` (everything that must hold of a launch order),
`become_user`, `folders` (of jobs), `world_subreaper` (the processes of a world), `audit_log`,
`service` (the controller's socket).

It believes the server's signature, and nothing else that the controller says. It never reads what a
process of a user has written, opens no file of a user as root, and starts no shell.
"""
