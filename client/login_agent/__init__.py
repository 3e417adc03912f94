"""The login agent: lets the users of a host without a server use the server of the cluster.

`relay` passes requests on, `server_link` connects to the server, `renewal` renews the certificate.
"""
