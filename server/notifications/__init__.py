"""Messages to users about events of their jobs, by mail or to a web service.

`notifier` is the thread that reads the job history. `messages` decides which messages a line of the
history causes, and `delivery` sends one message. `pliant.server.support.notify_rules` decides which
receivers are allowed.
"""
