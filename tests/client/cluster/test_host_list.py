from __future__ import annotations

from pathlib import Path

import pytest

from pliant.client.client_errors import UsageError
from pliant.client.cluster.host_list import Host, read_hosts


def test_a_list_with_ranges_users_and_ports() -> None:
    found = read_hosts("n[01-02],alice@m7.site:2222")
    assert found == (Host("n01", "n01"), Host("n02", "n02"), Host("m7", "alice@m7.site:2222"))


def test_a_file_with_slots_names_and_interpreters(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(
        "# my machines\n\nn[1-2] slots=4 python=/opt/p/bin/python  # the fast ones\n"
        "bob@10.0.0.7:22 name=big.one slots=64\n10.0.0.8\n"
    )
    assert read_hosts(str(file)) == (
        Host("n1", "n1", 4, "/opt/p/bin/python"),
        Host("n2", "n2", 4, "/opt/p/bin/python"),
        Host("big.one", "bob@10.0.0.7:22", 64),
        Host("10.0.0.8", "10.0.0.8"),
    )


def test_names_are_short_where_they_are_unique() -> None:
    names = [host.name for host in read_hosts("a.x,b.x,b.y")]
    assert names == ["a", "b.x", "b.y"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no host"),
        ("n1,n1", "several hosts n1"),
        ("n[3-1]", "backwards"),
        ("a b", "USER@.HOST"),
        ("/nowhere/hosts", "no such file"),
    ],
)
def test_lists_that_are_refused(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        read_hosts(text)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("n1 slots=0", "slots=0"),
        ("n1 slots=x", "slots=x"),
        ("n1 slots=1 slots=2", "twice"),
        ("n1 cores=4", "expected slots=N"),
        ("n[1-2] name=x", "name=x"),
        ("n1 name=a/b", "name=a/b"),
        ("-oProxyCommand=x", "USER@.HOST"),
    ],
)
def test_lines_that_are_refused_are_named(tmp_path: Path, line: str, word: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"good\n{line}\n")
    with pytest.raises(UsageError, match=word) as caught:
        read_hosts(str(file))
    assert "line 2" in str(caught.value)
