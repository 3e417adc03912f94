"""Prove who a peer is: certificates of nodes, keys of applications, the secret of the cluster.

Peers are node controllers, applications and login agents. `opening_handshake` and `cluster_secret`
serve connections without certificates, `node_admission` and `tls_files` those over TLS.

What a *user* may do is decided in `pliant.server.authorisation`.
"""
