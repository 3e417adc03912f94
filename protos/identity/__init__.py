"""The identity of a cluster: keys and certificates.

`authority` issues certificates, `certificates` reads and verifies them, `trust_bundle` replaces a
root. `cluster_files` keeps the server's keys and certificates on disk, `node_files` those of a
node, and `admitted_nodes` the list of nodes. `grpc_tls` makes gRPC refuse versions
of TLS below 1.3.

All cryptography comes from the package ``cryptography``. It takes long to import, so only processes
that need it import these modules: no program that uses appkit, no shim, and no other command.
"""
