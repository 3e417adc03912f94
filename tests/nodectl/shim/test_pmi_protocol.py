"""PMI-1 without sockets."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from pliant.nodectl.shim.pmi_protocol import Abort, Barrier, Effect, Finalized, PmiServer, Reply


def server(local: tuple[int, ...] = (0, 1), size: int = 2) -> PmiServer:
    return PmiServer("w1", size, local, "(vector,(0,1,2))")


def text(effects: list[Effect]) -> str:
    (reply,) = effects
    assert isinstance(reply, Reply)
    assert reply.data.endswith(b"\n")
    return reply.data.decode().rstrip("\n")


def test_the_first_talk() -> None:
    pmi = server()
    init = pmi.handle(0, b"cmd=init pmi_version=1 pmi_subversion=1")
    assert text(init) == "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
    maxes = text(pmi.handle(0, b"cmd=get_maxes "))
    assert maxes == "cmd=maxes rc=0 kvsname_max=256 keylen_max=256 vallen_max=4096"
    assert text(pmi.handle(0, b"cmd=get_appnum")) == "cmd=appnum rc=0 appnum=0"
    assert text(pmi.handle(0, b"cmd=get_universe_size")) == "cmd=universe_size rc=0 size=2"
    assert text(pmi.handle(0, b"cmd=get_my_kvsname")) == "cmd=my_kvsname rc=0 kvsname=w1"
    mapping = text(pmi.handle(1, b"cmd=get kvsname=w1 key=PMI_process_mapping"))
    assert mapping == "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))"


def test_what_one_rank_puts_another_gets() -> None:
    pmi = server()
    put = pmi.handle(0, b"cmd=put kvsname=w1 key=P0 value=a=b c")
    assert text(put) == "cmd=put_result rc=0 msg=success"
    got = text(pmi.handle(1, b"cmd=get kvsname=w1 key=P0"))
    assert got == "cmd=get_result rc=0 msg=success value=a=b c"
    none = text(pmi.handle(1, b"cmd=get kvsname=w1 key=P9"))
    assert none == "cmd=get_result rc=-1 msg=key_P9_not_found value=unknown"


def test_a_barrier_opens_when_it_is_released() -> None:
    pmi = server()
    pmi.handle(0, b"cmd=put kvsname=w1 key=P0 value=x")
    assert pmi.handle(0, b"cmd=barrier_in") == []
    assert pmi.handle(1, b"cmd=barrier_in") == [Barrier(1, {"P0": "x"})]
    out = b"cmd=barrier_out rc=0\n"
    assert pmi.release({"P2": "y"}) == [Reply(0, out), Reply(1, out)]
    assert text(pmi.handle(0, b"cmd=get kvsname=w1 key=P2")).endswith("value=y")


def test_a_barrier_carries_only_what_is_new() -> None:
    pmi = server((3,), 4)
    pmi.handle(3, b"cmd=put kvsname=w1 key=A value=1")
    assert pmi.handle(3, b"cmd=barrier_in") == [Barrier(1, {"A": "1"})]
    pmi.release({})
    pmi.handle(3, b"cmd=put kvsname=w1 key=B value=2")
    assert pmi.handle(3, b"cmd=barrier_in") == [Barrier(2, {"B": "2"})]


def test_a_rank_that_knocks_twice_counts_once() -> None:
    pmi = server()
    assert pmi.handle(0, b"cmd=barrier_in") == []
    assert pmi.handle(0, b"cmd=barrier_in") == []


def test_finalize_is_acknowledged() -> None:
    done, reply = server().handle(1, b"cmd=finalize")
    assert done == Finalized(1)
    assert reply == Reply(1, b"cmd=finalize_ack rc=0\n")


def test_abort_gives_the_exit_code_and_the_message() -> None:
    pmi = server()
    line = b"cmd=abort exitcode=5 message=no more = left"
    assert pmi.handle(1, line) == [Abort(1, 5, "no more = left")]
    assert pmi.handle(0, b"cmd=abort") == [Abort(0, 1, "")]
    assert pmi.handle(0, b"cmd=abort exitcode=x") == [Abort(0, 1, "")]


def test_spawning_is_refused_after_its_last_line() -> None:
    pmi = server()
    for line in (b"mcmd=spawn", b"nprocs=1", b"execname=x", b"cmd=barrier_in"):
        assert pmi.handle(0, line) == []
    assert text(pmi.handle(0, b"endcmd")) == "cmd=spawn_result rc=-1 msg=unsupported"
    assert pmi.handle(0, b"cmd=barrier_in") == []


def test_unknown_and_malformed_lines_get_an_answer() -> None:
    pmi = server()
    assert "rc=-1" in text(pmi.handle(0, b"cmd=dance"))
    assert "rc=-1" in text(pmi.handle(0, b"nonsense"))
    assert "rc=-1" in text(pmi.handle(0, b"cmd=put"))
    assert "rc=-1" in text(pmi.handle(0, b"cmd=get"))
    assert pmi.handle(0, b"") == []


@given(st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=60)), max_size=20))
def test_no_line_breaks_the_server(lines: list[tuple[int, bytes]]) -> None:
    pmi = server()
    for rank, line in lines:
        pmi.handle(rank, line.replace(b"\n", b""))
    assert text(pmi.handle(2, b"cmd=get_appnum")).startswith("cmd=appnum")


NAMES = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=20)


@given(st.dictionaries(NAMES, st.text(string.ascii_letters + "=()#:, ", min_size=1).map(str.strip)))
def test_all_pairs_come_back(pairs: dict[str, str]) -> None:
    pmi = server()
    for key, value in pairs.items():
        pmi.handle(0, f"cmd=put kvsname=w1 key={key} value={value}".encode())
    for key, value in pairs.items():
        got = text(pmi.handle(1, f"cmd=get kvsname=w1 key={key}".encode()))
        assert got == f"cmd=get_result rc=0 msg=success value={value}"
