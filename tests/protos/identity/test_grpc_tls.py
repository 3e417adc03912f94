"""What the TLS of gRPC accepts, and what it tells a server about its peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from pliant.protos.identity import authority, keys
from pliant.protos.identity.authority import DAY_S, Authority
from pliant.protos.identity.certificate_names import SERVER_DNS_NAME, Role
from pliant.protos.identity.certificates import format_certificates
from testkit import run_python

from .conftest import NOW, Member, make_member

Make = Callable[..., Member]
METHOD = "/pliant.Test/Call"


class Handler(grpc.GenericRpcHandler):
    """Answers every call, and keeps what gRPC knows about the caller."""

    def __init__(self) -> None:
        self.peer: dict[str, list[bytes]] = {}

    def service(self, _: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, _: bytes, context: Any) -> bytes:
        self.peer = dict(context.auth_context())
        return b"answer"


def encode(member: Member) -> tuple[bytes, bytes]:
    """Return key and certificates as gRPC takes them."""
    certificates = format_certificates(member.chain).encode()
    return keys.format_private_key(member.key).encode(), certificates


def call(
    server: Member, client: Member, roots: Sequence[x509.Certificate]
) -> dict[str, list[bytes]]:
    """Call a server, and return what it knows about the client.

    Raises:
        grpc.RpcError: one of the two refuses.
    """
    handler, trusted = Handler(), format_certificates(roots).encode()
    serving = grpc.server(ThreadPoolExecutor(1), handlers=[handler])
    key, certificates = encode(client)
    target = (("grpc.ssl_target_name_override", SERVER_DNS_NAME),)
    demanding = grpc.ssl_server_credentials([encode(server)], trusted, require_client_auth=True)
    port = serving.add_secure_port("127.0.0.1:0", demanding)
    serving.start()
    try:
        credentials = grpc.ssl_channel_credentials(trusted, key, certificates)
        with grpc.secure_channel(f"127.0.0.1:{port}", credentials, target) as channel:
            ask: Any = channel.unary_unary(METHOD)
            assert ask(b"", timeout=20) == b"answer"
    finally:
        serving.stop(0).wait()
    return handler.peer


def test_a_server_learns_the_identity_of_its_client(root: Authority, member: Make) -> None:
    server = member(Role.SERVER, "server")
    for role in (Role.NODE, Role.LOGIN_AGENT):
        peer = call(server, member(role), [root.certificate])
        assert peer["x509_subject_alternative_name"] == [f"pliant://blue/{role}/n7".encode()]
        assert peer["ssl_tls_version"] == [b"TLSv1.3"]


def test_certificates_are_good_for_their_role_only(root: Authority, member: Make) -> None:
    server, node = member(Role.SERVER, "server"), member(Role.NODE)
    for serving, asking in ((node, node), (server, server)):
        with pytest.raises(grpc.RpcError) as caught:
            call(serving, asking, [root.certificate])
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_members_of_another_root_and_expired_ones_are_refused(
    root: Authority, member: Make
) -> None:
    long_ago = NOW - 100 * DAY_S
    other = authority.create_root("blue", now=long_ago)
    issuer = authority.create_issuer(other, now=long_ago)
    server = member(Role.SERVER, "server")
    expired = make_member(issuer, Role.NODE, now=NOW - 31 * DAY_S)
    fresh = make_member(issuer, Role.NODE)
    for roots, client in (
        ([root.certificate], fresh),
        ([root.certificate, other.certificate], expired),
    ):
        with pytest.raises(grpc.RpcError):
            call(server, client, roots)
    assert call(server, fresh, [root.certificate, other.certificate])


@pytest.mark.parametrize(("versions", "old"), [("all", "accepted"), ("1.3", "refused")])
def test_grpc_refuses_tls_1_2_if_no_suite_of_it_fits_the_certificate(
    root: Authority, member: Make, tmp_path: Path, versions: str, old: str
) -> None:
    (tmp_path / "roots.pem").write_text(format_certificates([root.certificate]))
    server = member(Role.SERVER, "server", addresses=["127.0.0.1"]).write(tmp_path)
    node = member(Role.NODE).write(tmp_path)
    done = run_python(
        str(Path(__file__).with_name("tls_versions.py")),
        versions,
        *server,
        str(tmp_path / "roots.pem"),
        *node,
    )
    found = dict(line.split(maxsplit=2)[:2] for line in done.stdout.splitlines())
    assert found == {"TLSv1_2": old, "TLSv1_3": "accepted", "gRPC": "accepted"}


def test_the_suites_are_set_before_grpc_is_loaded() -> None:
    call = "from pliant.protos.identity.grpc_tls import require_tls_1_3 as call; call()"
    done = run_python("-c", f"import grpc\n{call}", check=False)
    assert "before grpc is imported" in done.stderr
    assert run_python("-c", f"{call}\nimport grpc\ncall()").returncode == 0
