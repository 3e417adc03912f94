from __future__ import annotations

import time
from pathlib import Path

from pliant.protos.identity import cluster_files
from pliant.protos.identity.authority import DAY_S
from pliant.server.authentication.tls_files import TlsFiles
from tlskit import Membership


def test_certificates_of_the_server_that_end_are_named(tmp_path: Path) -> None:
    files, now = TlsFiles(Membership(tmp_path).directory), time.time()
    assert files.problems(now) == []
    old = files.problems(now + 200 * DAY_S)
    assert [each.partition(" ends in ")[0] for each in old] == [
        "the server's certificate",
        "the certificate of the issuing authority",
    ]
    assert all("pliant cluster renew" in each for each in old)
    assert all("was valid until" in each for each in files.problems(now + 400 * DAY_S))
    assert "valid from" in files.problems(now - 10 * DAY_S)[0]


def test_damaged_files_leave_the_certificates_in_use(tmp_path: Path) -> None:
    directory = Membership(tmp_path).directory
    files = TlsFiles(directory)
    before = files.current
    path = directory / cluster_files.SERVER
    good = path.read_bytes()
    path.write_bytes(good[:100])
    assert files.current is before
    path.write_bytes(good + good)  # another content that belongs together would be read
    assert files.current is before
    path.write_bytes(good)
    assert files.current.certificates == before.certificates
