"""The root helper of a node: starts shims as the users of their jobs, on signed orders only.

It is the only part of Pliant that runs as root. Read its modules in this order: `config` (files
that root owns), `requests` (the checks of a launch order), `users` (switch to a user),
`job_folders`, `keeper` (the processes of a world), `audit_log`, `service` (the controller's
socket).

It believes the server's signature, and nothing else that the controller says. It never reads what a
process of a user has written, opens no file of a user as root, and starts no shell.
"""
