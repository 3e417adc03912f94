"""Run a gRPC server that demands certificates, and print which versions of TLS it accepts.

gRPC reads GRPC_SSL_CIPHER_SUITES once, so each setting needs a process of its own:
``python tls_versions.py all|1.3 CERTIFICATES KEY ROOTS CLIENT_CERTIFICATES CLIENT_KEY``.
"""

from __future__ import annotations

import socket
import ssl
import sys
from concurrent import futures
from pathlib import Path

from pliant.protos.identity.grpc_tls import require_tls_1_3

if sys.argv[1] == "1.3":
    require_tls_1_3()

import grpc


def main(
    certificates: str, key: str, roots: str, client_certificates: str, client_key: str
) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    pair = (Path(key).read_bytes(), Path(certificates).read_bytes())
    trusted = Path(roots).read_bytes()
    credentials = grpc.ssl_server_credentials([pair], trusted, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cafile=roots)
        context.minimum_version = context.maximum_version = version
        context.load_cert_chain(client_certificates, client_key)
        context.set_alpn_protocols(["h2"])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="server.pliant") as secure:
                    first = secure.recv(9)  # the header of the HTTP/2 settings
                    print(version.name, "accepted" if first[3:4] == b"\4" else "refused")
            except OSError as error:
                print(version.name, "refused", getattr(error, "reason", error))
    # gRPC's own client, which is restricted by the same variable.
    client = grpc.ssl_channel_credentials(
        trusted, Path(client_key).read_bytes(), Path(client_certificates).read_bytes()
    )
    target = (("grpc.ssl_target_name_override", "server.pliant"),)
    with grpc.secure_channel(f"127.0.0.1:{port}", client, target) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=20)
            print("gRPC accepted")
        except grpc.FutureTimeoutError:
            print("gRPC refused")
    server.stop(0).wait()


if __name__ == "__main__":
    main(*sys.argv[2:])
