"""Admit new hosts to the cluster: a listener of its own, which hosts without a certificate can use.

`node_joining_listener` reads the request of a host, `admission` decides and issues the certificate.
The host's side is `pliant.client.node_joining`. Ranks that join a running job are another topic:
see `pliant.appkit.joining`.
"""
