"""The files of a cluster's identity: complete or not there, and private."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pliant.protos.daemons import atomic_files
from pliant.protos.daemons.private_paths import UntrustedPathError
from pliant.protos.identity import cluster_files, keys
from pliant.protos.identity.certificate_names import Identity, Role
from pliant.protos.identity.certificates import verify_chain
from pliant.protos.identity.cluster_files import (
    ClusterIdentity,
    create_identity,
    load_identity,
    load_issuer,
)
from pliant.protos.identity.identity_errors import IdentityNameError, StoredIdentityError

from .conftest import make_member

NAMES = {
    *("roots.pem", "root.key", "issuer.pem", "issuer.key"),
    *("server.pem", "server.key", "order.key", "order.pub"),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "identity"


def create(directory: Path, cluster: str = "blue") -> ClusterIdentity:
    return create_identity(directory, cluster, ["front", "10.0.0.1"], now=time.time())


def test_what_is_made_is_what_is_read(directory: Path) -> None:
    made = create(directory)
    assert made == load_identity(directory)
    assert {each.name for each in directory.iterdir()} == {*NAMES, "files.lock"}
    assert (made.cluster, made.has_root_key) == ("blue", True)
    found = verify_chain(made.server, made.roots, now=time.time())
    assert found == Identity("blue", Role.SERVER, "server")
    node = make_member(load_issuer(directory), Role.NODE, now=time.time())
    assert verify_chain(node.chain, made.roots, now=time.time()).name == "n7"


def test_all_files_are_private_whatever_the_umask(directory: Path) -> None:
    before = os.umask(0)
    try:
        create(directory)
    finally:
        os.umask(before)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in directory.iterdir()} == {0o600}
    shutil.rmtree(directory)
    before = os.umask(0o777)
    try:
        create(directory)
    finally:
        os.umask(before)


def test_the_root_key_may_be_moved_offline(directory: Path) -> None:
    create(directory)
    (directory / "root.key").unlink()
    assert not load_identity(directory).has_root_key


def test_an_identity_is_not_overwritten(directory: Path) -> None:
    made = create(directory)
    with pytest.raises(StoredIdentityError, match="already"):
        create(directory, "red")
    assert load_identity(directory) == made
    (directory / "roots.pem").unlink()
    with pytest.raises(StoredIdentityError, match="already"):
        create(directory, "red")


def test_other_files_are_left_alone(directory: Path) -> None:
    directory.mkdir()
    (directory / "thesis.tex").touch()
    with pytest.raises(StoredIdentityError, match="exists already"):
        create(directory)
    (directory / "thesis.tex").unlink()
    with pytest.raises(StoredIdentityError, match="exists already"):
        create(directory)
    directory.rmdir()
    assert create(directory).cluster == "blue"


@pytest.mark.parametrize("step", range(10))
def test_a_failure_leaves_nothing(
    directory: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = atomic_files.write_private
    calls: list[Path] = []

    def fail(path: Path, content: bytes) -> None:
        calls.append(path)
        if len(calls) > step:
            raise OSError(28, "No space left on device", str(path))
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(cluster_files, "write_private", fail)
        if step == 9:  # all files are written, and the renaming fails
            patch.setattr(Path, "rename", lambda *_: fail(directory, b""))
        with pytest.raises(OSError, match="space"):
            create(directory)
    assert list(directory.parent.iterdir()) == []
    assert create(directory).cluster == "blue"


def test_what_a_killed_creation_left_is_removed(directory: Path) -> None:
    draft = directory.with_name(".identity.new")
    draft.mkdir(mode=0o700)
    (draft / "root.key").write_text("half of a k")
    made = create(directory)
    assert list(directory.parent.iterdir()) == [directory]
    assert load_identity(directory) == made


def test_of_two_creations_at_once_one_succeeds(directory: Path) -> None:
    def attempt(number: int) -> str:
        try:
            return create(directory, f"blue{number}").cluster
        except StoredIdentityError:
            return ""

    with ThreadPoolExecutor(4) as threads:
        made = [name for name in threads.map(attempt, range(4)) if name]
    assert made == [load_identity(directory).cluster]


def test_a_running_creation_is_named(directory: Path) -> None:
    descriptor = os.open(directory.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(StoredIdentityError, match="is running"):
            create(directory)
    finally:
        os.close(descriptor)


def test_a_place_that_others_can_change_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(StoredIdentityError, match="--directory"):
        create(shared / "identity")
    assert list(shared.iterdir()) == []


def test_a_wrong_name_leaves_nothing(directory: Path) -> None:
    with pytest.raises(IdentityNameError):
        create(directory, "blue/green")
    with pytest.raises(IdentityNameError):
        create_identity(directory, "blue", ["front:443"], now=time.time())
    assert not directory.exists()


def test_where_no_identity_is(directory: Path) -> None:
    for _ in range(2):
        with pytest.raises(StoredIdentityError, match="pliant cluster init"):
            load_identity(directory)
        directory.mkdir(mode=0o700, exist_ok=True)


@pytest.mark.parametrize("name", sorted(NAMES - {"root.key", "roots.pem"}))
def test_a_missing_file_is_named(directory: Path, name: str) -> None:
    create(directory)
    (directory / name).unlink()
    with pytest.raises(StoredIdentityError, match=f"{name} is missing"):
        load_identity(directory)


@pytest.mark.parametrize("name", sorted(NAMES - {"root.key"}))
@pytest.mark.parametrize("content", [b"", b"junk", b"\0" * 700], ids=["empty", "junk", "zeros"])
def test_a_damaged_file_is_named(directory: Path, name: str, content: bytes) -> None:
    create(directory)
    (directory / name).write_bytes(content)
    with pytest.raises(StoredIdentityError, match=f"{name} is damaged"):
        load_identity(directory)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_file_that_others_can_read_is_refused(directory: Path, name: str) -> None:
    create(directory)
    (directory / name).chmod(0o640)
    with pytest.raises(UntrustedPathError, match=f"{name}.*chmod 600"):
        load_identity(directory)


def test_a_link_is_not_followed(directory: Path, tmp_path: Path) -> None:
    create(directory)
    (directory / "server.key").rename(tmp_path / "elsewhere")
    (directory / "server.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UntrustedPathError, match="link"):
        load_identity(directory)


def test_files_of_different_clusters_are_not_mixed(directory: Path, tmp_path: Path) -> None:
    create(directory)
    other = tmp_path / "other"
    create(other)
    mixtures = (
        *(["server.key"], ["issuer.key"], ["order.pub"], ["order.key"], ["roots.pem"]),
        *(["server.key", "server.pem"], ["issuer.key", "issuer.pem"]),
    )
    for names in mixtures:
        mixed = shutil.copytree(directory, tmp_path / "mixed")
        for name in names:
            shutil.copy(other / name, mixed / name)
        with pytest.raises(StoredIdentityError, match=r"belong together|not the public key"):
            load_identity(mixed)
        shutil.rmtree(mixed)


def test_the_order_key_signs_for_the_public_key(directory: Path) -> None:
    made = create(directory)
    key = keys.parse_order_key((directory / "order.key").read_bytes())
    assert key.public_key().public_bytes_raw() == made.order_public_key
