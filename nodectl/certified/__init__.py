"""A node that has joined a cluster: its settings, its TLS connection, its certificate's renewal.

`joined_node` reads the node's identity, `tls_link` connects with it, `tls_diagnosis` finds out why
a connection fails, `renewal` replaces the certificate, and `server_address_for_applications` tells
applications how to connect. Importing these modules loads ``cryptography``, so a node without an
identity does not import them.
"""
