from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest

from pliant.server.authorisation.access_control import AccessControl, RequestingUser, UserRole
from pliant.server.authorisation.roles import Members, Roles, RolesFileError, read_roles
from pliant.server.authorisation.user_database import look_up

ACCOUNT, GROUP = pwd.getpwall()[1], grp.getgrall()[1]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path / "roles.yaml"


def test_without_a_file_there_are_the_operators_of_the_configuration() -> None:
    assert read_roles("") == Roles()
    assert read_roles("", [ACCOUNT.pw_name]).operators == Members(frozenset({ACCOUNT.pw_uid}))


def test_the_file_names_users_and_groups(file: Path) -> None:
    file.write_text(
        f"operators:\n  users: [{ACCOUNT.pw_name}]\n  groups: [{GROUP.gr_name}]\n"
        f"administrators:\n  groups: [{GROUP.gr_name}]\n"
    )
    found = read_roles(str(file), ["root"])
    group = frozenset({GROUP.gr_gid})
    assert found.operators == Members(frozenset({ACCOUNT.pw_uid, 0}), group)
    assert found.administrators == Members(frozenset(), group)


@pytest.mark.parametrize("text", ["", "operators:\n", "operators:\n  users:\n", "operators: {}\n"])
def test_empty_roles(file: Path, text: str) -> None:
    file.write_text(text)
    assert read_roles(str(file)) == Roles()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("operator: {}\n", "operator: unknown role"),
        ("operators: [root]\n", "operators: expected the keys users and groups"),
        ("operators: {user: [root]}\n", "operators: expected the keys users and groups"),
        ("operators: {users: root}\n", r"operators\.users: expected a list"),
        ("operators: {users: [0]}\n", r"operators\.users: expected a list"),
        ("operators: {users: [nobody-here]}\n", r"operators\.users: there is no user"),
        ("operators: {groups: [no-group]}\n", r"operators\.groups: there is no group"),
        ("- a\n", "expected keys and values"),
        ("operators: {}\noperators: {}\n", "already"),
        ("a: [\n", "not YAML"),
    ],
)
def test_mistakes_are_named(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(RolesFileError, match=message):
        read_roles(str(file))


def test_a_file_that_is_missing_or_has_no_absolute_path(file: Path) -> None:
    with pytest.raises(RolesFileError, match="No such file"):
        read_roles(str(file))
    with pytest.raises(RolesFileError, match="absolute path"):
        read_roles("roles.yaml")


@pytest.mark.parametrize("how", ["mode", "folder", "link", "owner"])
def test_a_file_that_others_could_change_is_refused(file: Path, how: str) -> None:
    file.write_text("operators: {}\n")
    match how:
        case "mode":
            file.chmod(0o664)
        case "folder":
            file.parent.chmod(0o777)
        case "link":
            target = file.with_name("target")
            file.rename(target)
            file.symlink_to(target)
        case "owner":
            if os.geteuid() != 0:
                pytest.skip("only root can give files away")
            os.chown(file, 5002, 5002)
    with pytest.raises(RolesFileError, match="nobody else may write them"):
        read_roles(str(file))


def test_roles_by_user_and_group() -> None:
    roles = Roles(
        operators=Members(frozenset({10}), frozenset({100})),
        administrators=Members(frozenset({20}), frozenset({200})),
    )
    access = AccessControl(999, roles)
    groups = {100: frozenset({7, 100}), 200: frozenset({200})}
    assert access.role(RequestingUser(10, "a")) is UserRole.OPERATOR
    assert access.role(RequestingUser(11, "a", groups[100])) is UserRole.OPERATOR
    assert access.role(RequestingUser(20, "a")) is UserRole.ADMINISTRATOR
    assert access.role(RequestingUser(21, "a", groups[200])) is UserRole.ADMINISTRATOR
    assert access.role(RequestingUser(5001, "alice"), owner=5002) is UserRole.USER


@pytest.mark.parametrize("uid", [0, 20, 999])
def test_users_of_login_hosts_are_never_administrators(uid: int) -> None:
    roles = Roles(administrators=Members(frozenset({20}), frozenset({200})))
    access = AccessControl(999, roles)
    peer = RequestingUser(uid, "a", frozenset({200}), agent="login1")
    assert access.role(peer) is UserRole.USER
    assert access.role(peer, owner=uid) is UserRole.OWNER


def test_the_user_database_of_this_host() -> None:
    root = look_up(0)
    assert (root.name, root.is_known) == ("root", True)
    assert 0 in root.groups
    unknown = look_up(4_000_000_001)
    assert (unknown.name, unknown.groups, unknown.is_known) == ("4000000001", frozenset(), False)
