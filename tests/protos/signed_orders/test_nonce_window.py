"""A launch order is carried out once, also after crashes and when clocks are set back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.protos.daemons.private_paths import UntrustedPathError
from pliant.protos.identity.identity_errors import ReplayedOrderError, StoredIdentityError
from pliant.protos.signed_orders import nonce_window
from pliant.protos.signed_orders.nonce_window import NonceWindow
from pliant.protos.signed_orders.signature_and_validity import new_nonce

NOW = 1_800_000_000.0
RECORD = 28


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "helper").mkdir(mode=0o700)
    return tmp_path / "helper" / "nonces"


def use(path: Path, nonce: bytes, now: float = NOW, life_s: float = 120.0) -> bool:
    """Return whether an order with this nonce would be carried out."""
    try:
        NonceWindow(path).use(nonce, keep_until=NOW + life_s, now=now)
    except ReplayedOrderError:
        return False
    return True


def test_a_nonce_is_used_once_also_after_a_restart(path: Path) -> None:
    window, nonces = NonceWindow(path), [new_nonce() for _ in range(20)]
    for nonce in nonces:
        window.use(nonce, keep_until=NOW + 120, now=NOW)
    for nonce in nonces:
        with pytest.raises(ReplayedOrderError, match="before"):
            window.use(nonce, keep_until=NOW + 120, now=NOW)
        assert not use(path, nonce)
    assert use(path, new_nonce())


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=30))
def test_it_remembers_what_a_set_remembers(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]]
) -> None:
    path, used = tmp_path_factory.mktemp("window") / "nonces", set()
    window = NonceWindow(path)
    for number, restart in steps:
        window = NonceWindow(path) if restart else window
        try:
            window.use(bytes([number] * 16), keep_until=NOW + 9, now=NOW)
            accepted = True
        except ReplayedOrderError:
            accepted = False
        assert accepted == (number not in used)
        used.add(number)


def test_expired_nonces_are_forgotten_and_their_orders_stay_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nonce_window, "_MIN_RECORDS_TO_COMPACT", 16)
    old = [new_nonce() for _ in range(12)]
    for nonce in old:
        assert use(path, nonce)
    lasting = new_nonce()
    assert use(path, lasting, life_s=900.0)
    later = NOW + 121
    for _ in range(40):
        assert use(path, new_nonce(), now=later, life_s=300.0)
    assert path.stat().st_size < 60 * RECORD
    kept = path.read_bytes()
    assert all(nonce not in kept for nonce in old)
    assert lasting in kept
    # The clock is set back to the time in which the old orders were valid.
    assert not any(use(path, nonce) for nonce in old)
    assert not use(path, new_nonce())
    assert not use(path, lasting, life_s=900.0)
    assert use(path, new_nonce(), life_s=300.0)


def test_a_clock_that_was_ahead_at_first_does_not_block_a_node(path: Path) -> None:
    year_s = 365 * 86400.0
    assert use(path, new_nonce(), now=NOW + year_s, life_s=year_s + 120)
    assert use(path, new_nonce())


@pytest.mark.parametrize("tail", [b"\0", b"x" * 27, bytes(28), b"x" * 28], ids=len)
def test_a_record_whose_write_was_interrupted_does_not_count(path: Path, tail: bytes) -> None:
    nonces = [new_nonce() for _ in range(3)]
    for nonce in nonces:
        assert use(path, nonce)
    with path.open("ab") as file:
        file.write(tail)
    assert not use(path, nonces[2])
    more = new_nonce()
    assert use(path, more)
    assert path.stat().st_size == 5 * RECORD
    assert not any(use(path, nonce) for nonce in [*nonces, more])


@given(st.data())
def test_a_damaged_file_lets_nothing_pass_that_was_used(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("window") / "nonces"
    nonces = [bytes([number] * 16) for number in range(1, 5)]
    for nonce in nonces:
        assert use(path, nonce)
    content = bytearray(path.read_bytes())
    # All but the last record, which could be one whose write was interrupted.
    place = data.draw(st.integers(0, len(content) - RECORD - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises(StoredIdentityError, match="damaged"):
        use(path, new_nonce())


def test_an_empty_file_is_damaged(path: Path) -> None:
    path.touch(mode=0o600)
    with pytest.raises(StoredIdentityError, match="remove it"):
        use(path, new_nonce())


def test_a_full_disk_refuses_the_order_and_harms_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = new_nonce(), new_nonce()
    assert use(path, first)
    write = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:9], at))
        with pytest.raises(OSError, match="space"):
            use(path, second)
    assert use(path, second)
    assert not use(path, first)
    assert not use(path, second)


def test_of_many_threads_one_carries_an_order_out(path: Path) -> None:
    window, nonce = NonceWindow(path), new_nonce()

    def attempt(_: int) -> bool:
        try:
            window.use(nonce, keep_until=NOW + 120, now=NOW)
        except ReplayedOrderError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(attempt, range(32))) == 1


USE_ALL = """
import sys
from pathlib import Path
from pliant.protos.identity.identity_errors import ReplayedOrderError
from pliant.protos.signed_orders.nonce_window import NonceWindow
window = NonceWindow(Path(sys.argv[1]))
for number in range(1, int(sys.argv[2]) + 1):
    try:
        window.use(number.to_bytes(16, "big"), keep_until=1800000120.0, now=1800000000.0)
        print(number, flush=True)
    except ReplayedOrderError:
        pass
"""


def start(path: Path, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", USE_ALL, str(path), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_of_two_processes_one_carries_each_order_out(path: Path) -> None:
    both = [start(path, 100) for _ in range(2)]
    printed = [process.communicate(timeout=60)[0].split() for process in both]
    assert sorted(map(int, printed[0] + printed[1])) == list(range(1, 101))


def test_a_killed_process_leaves_a_usable_file_and_a_free_lock(path: Path) -> None:
    process = start(path, 1_000_000)
    assert process.stdout is not None
    seen = [int(process.stdout.readline()) for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait(timeout=20)
    process.stdout.close()
    for number in [*seen, *map(int, rest)]:
        assert not use(path, number.to_bytes(16, "big"))
    assert use(path, new_nonce())


def test_files_that_others_may_change_are_refused(path: Path) -> None:
    assert use(path, new_nonce())
    path.chmod(0o666)
    with pytest.raises(UntrustedPathError, match="mode 0666"):
        use(path, new_nonce())
    path.chmod(0o600)
    path.parent.chmod(0o777)
    with pytest.raises(UntrustedPathError, match="mode 0777"):
        use(path, new_nonce())
    path.parent.chmod(0o700)
    path.unlink()
    path.symlink_to("/dev/null")
    with pytest.raises(UntrustedPathError, match="link"):
        use(path, new_nonce())


@pytest.mark.parametrize("nonce", [b"", bytes(15), bytes(16), bytes(17)], ids=len)
def test_what_is_no_nonce_is_refused(path: Path, nonce: bytes) -> None:
    with pytest.raises(ValueError, match="16 random bytes"):
        NonceWindow(path).use(nonce, keep_until=NOW + 9, now=NOW)
