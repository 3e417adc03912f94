"""The identity of a cluster: certificates, join tokens and signed launch orders.

`authority` issues certificates, `certificates` reads and verifies them, `trust_bundle` replaces a
root. `join_token` admits a node once. `launch_order` and `nonce_window` let a node execute what the
server has signed, once. `cluster_files` keeps keys and certificates on disk. `grpc_tls` makes gRPC
refuse versions of TLS below 1.3.

All cryptography comes from the package ``cryptography``. It takes long to import, so only processes
that need it import these modules: no program that uses appkit, no shim, and no other command.
"""
