"""Admit new hosts to the cluster, on a port of their own that needs no client certificate.

`node_joining_listener` reads the request of a host, `admission` decides and issues the certificate.
The host's side is `pliant.client.node_joining`. Ranks that join a running job are another topic:
see `pliant.appkit.joining`.
"""
