"""Messages to users about events of their jobs, by mail or to a web service.

`notifier` is the thread that reads the history, `messages` decides which messages a line gives, and
`delivery` sends one. Whom the server may tell is decided in `pliant.server.support.notify_rules`.
"""
