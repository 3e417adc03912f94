"""The files of a node's identity: complete, private, and replaced together."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.protos.daemons.atomic_files import write_private
from pliant.protos.daemons.private_paths import UntrustedPathError
from pliant.protos.identity import authority, keys, node_files, stored_files
from pliant.protos.identity.authority import Authority
from pliant.protos.identity.certificate_names import Identity, Role
from pliant.protos.identity.certificates import format_certificates
from pliant.protos.identity.identity_errors import (
    CertificateError,
    CertificateTimeError,
    StoredIdentityError,
)
from pliant.protos.identity.node_files import (
    NodeIdentity,
    ServerAddresses,
    create_node_identity,
    load_node_identity,
    replace_certificate,
    replace_roots,
)

from .conftest import NOW, Member, make_member

Make = Callable[..., Member]
ORDER_KEY = keys.format_public_key(keys.create_order_key().public_key()).encode()


def identity_of(member: Member, *roots: Authority) -> NodeIdentity:
    return NodeIdentity(
        Identity("blue", Role.NODE, "n7"),
        pem_of(member),
        format_certificates(member.chain).encode(),
        format_certificates([each.certificate for each in roots]).encode(),
        ORDER_KEY,
        ServerAddresses(("front:7781", "[fe80::1]:1"), 16, (2, 0)),
    )


def pem_of(member: Member) -> bytes:
    return keys.format_private_key(member.key).encode()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "node-identity"


@pytest.fixture
def made(directory: Path, member: Make, root: Authority) -> NodeIdentity:
    identity = identity_of(member(Role.NODE), root)
    create_node_identity(directory, identity)
    return identity


def test_what_is_written_is_what_is_read(directory: Path, made: NodeIdentity) -> None:
    found = load_node_identity(directory)
    assert found == made
    assert (found.servers, found.slots) == (("front:7781", "[fe80::1]:1"), 16)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in directory.iterdir()} == {0o600}
    assert "PRIVATE" not in repr(found)
    with pytest.raises(StoredIdentityError, match="pliant node leave"):
        create_node_identity(directory, made)


@pytest.mark.usefixtures("made")
def test_the_time_is_checked_apart(directory: Path) -> None:
    load_node_identity(directory).check_time(NOW)
    with pytest.raises(CertificateTimeError, match="pliant cluster token --node n7"):
        load_node_identity(directory).check_time(NOW + 31 * authority.DAY_S)


def test_a_node_that_has_not_joined_is_told_how(directory: Path) -> None:
    with pytest.raises(FileNotFoundError, match="pliant node join"):
        load_node_identity(directory)


def test_a_creation_that_fails_leaves_nothing(
    directory: Path, member: Make, root: Authority
) -> None:
    good = identity_of(member(Role.NODE), root)
    with pytest.raises(StoredIdentityError, match="do not belong together"):
        create_node_identity(directory, replace(good, key=pem_of(member(Role.NODE))))
    assert list(directory.parent.iterdir()) == []


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("name", sorted(node_files._FILES))
def test_missing_and_damaged_files_are_named(directory: Path, name: str) -> None:
    (directory / name).write_text("not what it should be")
    with pytest.raises(StoredIdentityError, match=f"{name} is damaged"):
        load_node_identity(directory)
    (directory / name).unlink()
    with pytest.raises(StoredIdentityError, match=f"{name} is missing"):
        load_node_identity(directory)


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    "change",
    [
        {"servers": []},
        {"servers": ["front"]},
        {"servers": ["front:0"]},
        {"servers": "front:1"},
        {"slots": 0},
        {"slots": True},
        {"protocol": [2]},
        {"protocol": [2, -1]},
    ],
    ids=str,
)
def test_wrong_values_are_named(directory: Path, change: dict[str, object]) -> None:
    record = json.loads((directory / "server.json").read_text()) | change
    (directory / "server.json").write_text(json.dumps(record))
    with pytest.raises(StoredIdentityError, match=next(iter(change))):
        load_node_identity(directory)


@pytest.mark.usefixtures("made")
def test_files_of_other_authorities_and_roles_are_refused(directory: Path, member: Make) -> None:
    other = authority.create_root("blue", now=NOW)
    (directory / "roots.pem").write_text(format_certificates([other.certificate]))
    with pytest.raises(StoredIdentityError, match=r"not issued under a root in roots\.pem"):
        load_node_identity(directory)
    agent = member(Role.LOGIN_AGENT)
    (directory / "node.pem").write_text(format_certificates(agent.chain))
    with pytest.raises(StoredIdentityError, match="not of a node"):
        load_node_identity(directory)


@pytest.mark.usefixtures("made")
def test_what_others_may_use_is_refused(directory: Path) -> None:
    os.chmod(directory / "node.key", 0o640)
    with pytest.raises(UntrustedPathError, match="chmod 600"):
        load_node_identity(directory)
    os.chmod(directory / "node.key", 0o600)
    os.chmod(directory, 0o755)
    with pytest.raises(UntrustedPathError, match="chmod 700"):
        load_node_identity(directory)


@pytest.mark.usefixtures("made")
def test_a_renewal_replaces_key_certificate_and_roots(directory: Path, root: Authority) -> None:
    new_root = authority.create_root("blue", now=NOW)
    new = make_member(authority.create_issuer(new_root, now=NOW), Role.NODE)
    both = [root.certificate, new_root.certificate]
    found = replace_certificate(directory, pem_of(new), new.chain, both, now=NOW)
    assert found == load_node_identity(directory) == identity_of(new, root, new_root)
    found = replace_roots(directory, [new_root.certificate], now=NOW)
    assert found == load_node_identity(directory) == identity_of(new, new_root)
    with pytest.raises((CertificateError, StoredIdentityError)):
        replace_roots(directory, [root.certificate], now=NOW)
    assert found == load_node_identity(directory)


def test_a_wrong_renewal_changes_nothing(
    directory: Path, made: NodeIdentity, member: Make, root: Authority
) -> None:
    new, other, late = member(Role.NODE), member(Role.NODE, "n8"), member(Role.NODE, lifetime_s=1)
    roots = [root.certificate]
    with pytest.raises(StoredIdentityError, match="belong together"):
        replace_certificate(directory, made.key, new.chain, roots, now=NOW)
    with pytest.raises(CertificateError, match="n8"):
        replace_certificate(directory, pem_of(other), other.chain, roots, now=NOW)
    with pytest.raises(CertificateTimeError):
        replace_certificate(directory, pem_of(late), late.chain, roots, now=NOW + 10)
    assert load_node_identity(directory) == made


@pytest.mark.case(68)
@pytest.mark.parametrize("step", range(5))
def test_a_crash_during_a_renewal(
    directory: Path,
    made: NodeIdentity,
    member: Make,
    root: Authority,
    step: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new, calls = member(Role.NODE), []

    def crash(path: Path, content: bytes) -> None:
        calls.append(path)
        if len(calls) > step:
            raise KeyboardInterrupt
        write_private(path, content)

    def stop_at_journal(path: Path, missing_ok: bool = False) -> None:
        if path.name == "changes.json":
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    unlink = Path.unlink
    with monkeypatch.context() as patch:
        patch.setattr(stored_files, "write_private", crash)
        if step == 4:  # everything is written, and the journal is still there
            patch.setattr(Path, "unlink", stop_at_journal)
        with pytest.raises(KeyboardInterrupt):
            replace_certificate(directory, pem_of(new), new.chain, [root.certificate], now=NOW)
    expected = identity_of(new, root) if step else made
    assert load_node_identity(directory) == expected
    # A later change completes the interrupted one.
    assert replace_roots(directory, [root.certificate], now=NOW) == expected
    assert load_node_identity(directory) == expected
    assert not (directory / "changes.json").exists()
