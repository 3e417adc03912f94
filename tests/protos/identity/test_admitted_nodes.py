"""The list of admitted nodes: which certificates count, and that a damaged list admits nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pliant.protos.daemons.private_paths import UntrustedPathError
from pliant.protos.identity.admitted_nodes import (
    FILE,
    AdmittedNodes,
    issuer_of,
    key_id_of,
    serial_of,
)
from pliant.protos.identity.authority import DAY_S, Authority
from pliant.protos.identity.certificate_names import Role
from pliant.protos.identity.identity_errors import CertificateError, StoredIdentityError

from .conftest import NOW, Member

Make = Callable[..., Member]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "identity").mkdir(mode=0o700)
    return tmp_path / "identity" / FILE


@pytest.fixture
def nodes(path: Path) -> AdmittedNodes:
    return AdmittedNodes(path)


def test_an_admitted_node_may_connect_until_it_is_revoked(
    nodes: AdmittedNodes, member: Make, issuer: Authority
) -> None:
    assert nodes.read() == {}
    assert nodes.find("n7") is None
    (certificate, _) = member(Role.NODE).chain
    made = nodes.admit("n7", 16, certificate, now=NOW)
    assert nodes.read() == {"n7": made}
    assert (made.slots, made.admitted_at, made.revoked_at) == (16, NOW, None)
    assert made.ends == NOW + 30 * DAY_S
    assert made.allows(certificate)
    assert not made.allows(member(Role.NODE).chain[0])
    assert made.certificates[0].issuer == issuer_of(certificate) == key_id_of(issuer.certificate)
    revoked = nodes.revoke("n7", now=NOW + 1)
    assert nodes.find("n7") == revoked
    assert not revoked.allows(certificate)
    assert nodes.revoke("n7", now=NOW + 2).revoked_at == NOW + 1


def test_a_node_that_is_admitted_again_has_its_new_certificate_only(
    nodes: AdmittedNodes, member: Make
) -> None:
    stolen, fresh = member(Role.NODE).chain[0], member(Role.NODE).chain[0]
    nodes.admit("n7", None, stolen, now=NOW)
    nodes.revoke("n7", now=NOW)
    node = nodes.admit("n7", None, fresh, now=NOW)
    assert node.allows(fresh)
    assert not node.allows(stolen)
    with pytest.raises(CertificateError, match="does not count"):
        nodes.add_certificate("n7", member(Role.NODE).chain[0], replaces=serial_of(stolen), now=NOW)


def test_a_renewal_keeps_the_old_certificate_until_the_new_one_is_used(
    nodes: AdmittedNodes, member: Make
) -> None:
    first, second, third = (member(Role.NODE).chain[0] for _ in range(3))
    nodes.admit("n7", 4, first, now=NOW)
    nodes.add_certificate("n7", second, replaces=serial_of(first), now=NOW)
    nodes.add_certificate("n7", third, replaces=serial_of(first), now=NOW)  # an answer was lost
    node = nodes.read()["n7"]
    assert node.serials == tuple(map(serial_of, (first, second, third)))
    nodes.confirm("n7", serial_of(first))
    nodes.confirm("n7", "abc")
    nodes.confirm("n9", serial_of(first))
    assert nodes.read()["n7"] == node
    nodes.confirm("n7", serial_of(second))
    assert nodes.read()["n7"].serials == tuple(map(serial_of, (second, third)))
    assert nodes.read()["n7"].slots == 4


def test_the_list_of_certificates_stays_short(nodes: AdmittedNodes, member: Make) -> None:
    first = member(Role.NODE).chain[0]
    nodes.admit("n7", 4, first, now=NOW)
    for _ in range(12):
        last = member(Role.NODE).chain[0]
        nodes.add_certificate("n7", last, replaces=serial_of(first), now=NOW)
    found = nodes.read()["n7"].serials
    assert len(found) == 8
    assert (found[0], found[-1]) == (serial_of(first), serial_of(last))
    late = NOW + 31 * DAY_S
    nodes.add_certificate("n7", member(Role.NODE).chain[0], replaces=serial_of(first), now=late)
    assert len(nodes.read()["n7"].serials) == 2, "those that have expired are not kept"


def test_certificates_of_others_are_refused(nodes: AdmittedNodes, member: Make) -> None:
    certificate = member(Role.NODE).chain[0]
    with pytest.raises(CertificateError, match="n7"):
        nodes.admit("n8", 1, certificate, now=NOW)
    with pytest.raises(CertificateError, match="not that of node"):
        nodes.admit("n7", 1, member(Role.LOGIN_AGENT).chain[0], now=NOW)
    with pytest.raises(CertificateError, match="has not joined"):
        nodes.add_certificate("n7", certificate, replaces="1", now=NOW)
    nodes.admit("n7", 1, certificate, now=NOW)
    nodes.revoke("n7", now=NOW)
    with pytest.raises(CertificateError, match="is revoked"):
        nodes.add_certificate("n7", certificate, replaces=serial_of(certificate), now=NOW)
    with pytest.raises(CertificateError, match="there are: n7"):
        nodes.revoke("n8", now=NOW)


def test_changes_at_the_same_time_are_all_kept(path: Path, member: Make) -> None:
    made = {f"n{number}": member(Role.NODE, f"n{number}").chain[0] for number in range(12)}
    with ThreadPoolExecutor(6) as threads:
        list(
            threads.map(lambda name: AdmittedNodes(path).admit(name, 1, made[name], now=NOW), made)
        )
    assert set(AdmittedNodes(path).read()) == set(made)


GOOD: dict[str, Any] = {
    "name": "n7",
    "slots": 1,
    "certificates": [{"serial": "a", "issuer": "b", "ends": 1.0}],
    "admitted_at": 1.0,
    "revoked_at": None,
}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "[" * 5000,
        json.dumps({"form": 2, "nodes": []}),
        json.dumps({"form": 1, "nodes": [GOOD, GOOD]}),
        *(
            json.dumps({"form": 1, "nodes": [GOOD | change]})
            for change in (
                {"name": "../x"},
                {"name": 7},
                {"slots": 0},
                {"slots": "1"},
                {"slots": True},
                {"certificates": None},
                {"certificates": [{"serial": "x", "issuer": "b", "ends": 1.0}]},
                {"certificates": [{"serial": "a", "issuer": "b", "ends": float("inf")}]},
                {"admitted_at": None},
                {"revoked_at": "never"},
                {"revoked_at": False},
            )
        ),
    ],
    ids=lambda text: text[:90],
)
def test_a_damaged_list_is_an_error_and_is_not_overwritten(
    nodes: AdmittedNodes, path: Path, member: Make, content: str
) -> None:
    path.write_text(content)
    path.chmod(0o600)
    for use in (
        nodes.read,
        lambda: nodes.find("n7"),
        lambda: nodes.revoke("n7", now=NOW),
        lambda: nodes.admit("n7", 1, member(Role.NODE).chain[0], now=NOW),
    ):
        with pytest.raises(StoredIdentityError, match=r"nodes\.json is damaged"):
            use()
    assert path.read_text() == content


def test_a_list_that_others_can_change_is_refused(nodes: AdmittedNodes, path: Path) -> None:
    path.write_text(json.dumps({"form": 1, "nodes": [GOOD]}))
    path.chmod(0o660)
    with pytest.raises(UntrustedPathError):
        nodes.read()
