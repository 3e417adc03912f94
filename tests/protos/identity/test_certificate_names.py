from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.protos.identity.certificate_names import Identity, Role, parse_host
from pliant.protos.identity.identity_errors import CertificateError, IdentityNameError

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
identities = st.builds(Identity, names, st.sampled_from(Role), names)


@given(identities)
def test_an_identity_survives_its_uri(identity: Identity) -> None:
    assert Identity.from_uri(identity.uri) == identity


@given(identities, identities)
def test_different_identities_have_different_uris(one: Identity, other: Identity) -> None:
    assert (one == other) == (one.uri == other.uri)


@given(st.text(max_size=80))
def test_what_is_read_is_written_alike(text: str) -> None:
    try:
        identity = Identity.from_uri(f"pliant://{text}")
    except CertificateError:
        return
    assert identity.uri == f"pliant://{text}"


@pytest.mark.parametrize(
    "uri",
    [
        "pliant://blue/issuer/n7",
        "pliant://blue/NODE/n7",
        "pliant://blue/node",
        "pliant://blue/node/",
        "pliant://blue/node/n7/",
        "pliant://blue/node/n7?x",
        "pliant://blue/node/n7\n",
        "pliant://blue/node/..",
        "pliant:///node/n7",
        "http://blue/node/n7",
        "PLIANT://blue/node/n7",
        " pliant://blue/node/n7",
    ],
)
def test_other_forms_and_unknown_roles_are_refused(uri: str) -> None:
    with pytest.raises(CertificateError):
        Identity.from_uri(uri)


@pytest.mark.parametrize("name", ["", "-rf", "a/b", "a b", "é", "x" * 65, ".", "n7\n", "a%2fb"])
def test_names_that_are_no_part_of_a_uri_are_refused(name: str) -> None:
    with pytest.raises(IdentityNameError, match="node"):
        Identity("blue", Role.NODE, name)
    with pytest.raises(IdentityNameError, match="cluster"):
        Identity(name, Role.NODE, "n7")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Front.Example.org", "front.example.org"),
        ("n_1", "n_1"),
        ("10.0.0.1", "10.0.0.1"),
        ("FE80::1", "fe80::1"),
    ],
)
def test_addresses(text: str, found: str) -> None:
    assert str(parse_host(text)) == found


@pytest.mark.parametrize(
    "text",
    ["", "1.2.3.999", "1.2.3", "front:443", "[::1]", "fe80::1%eth0", "a..b", "-a", "*.org", "a b"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(IdentityNameError, match="address"):
        parse_host(text)
