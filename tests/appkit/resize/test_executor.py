"""Real ranks that join and leave a real application; every iteration verifies all its data."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pliant.appkit.joining.protocol_numbers import MAX_UNPROVEN_BYTES
from pliant.protos import app_pb2 as pb
from standin import Application
from standin.application import SECRET
from testkit import wait_until

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

Start = Callable[..., Application]


@pytest.fixture
def stop(tmp_path: Path) -> Path:
    return tmp_path / "stop"


def finish(app: Application, stop: Path) -> str:
    """Let the application come to its end; all processes ever started ended with 0."""
    stop.touch()
    codes = app.wait()
    assert set(codes) == {0}, (codes, app.text())
    text = app.text()
    assert f"size {len(app.processors)} " in text
    assert text.count("verified") == 1
    assert text.count("after main") == len(app.processors)  # leavers do not come there
    return text


def meets(pid: int, port: int) -> bool:
    """Whether a process has come to a rendezvous, and sleeps there."""
    process = psutil.Process(pid)
    there = any(port in end.raddr[1:] for end in process.net_connections("tcp"))
    return there and process.status() == psutil.STATUS_SLEEPING


def test_joining_ranks_are_appended_and_leavers_close_the_gap(start: Start, stop: Path) -> None:
    app = start("verify", 2, str(stop))
    grown = app.grow(2)
    assert grown.committed
    assert list(grown.processors) == [0, 1, 2, 3]
    assert {"join", "move", "commit", "total"} <= set(grown.seconds)
    assert grown.bytes_moved > 0
    shrunk = app.shrink([1, 2])
    assert shrunk.committed
    assert list(shrunk.processors) == [0, 3]
    assert shrunk.epoch == 2
    finish(app, stop)


def test_a_single_process_grows_and_shrinks_back(start: Start, stop: Path) -> None:
    app = start("verify", 1, str(stop))
    assert app.grow(2).committed
    assert app.shrink([1, 2]).committed
    finish(app, stop)


def test_the_coordinator_leaves(start: Start, stop: Path) -> None:
    app = start("verify", 3, str(stop))
    assert list(app.shrink([0]).processors) == [1, 2]
    assert list(app.grow(2).processors) == [1, 2, 3, 4]
    assert list(app.shrink([0, 1]).processors) == [3, 4]
    again = app.server.next("hello").hello  # the role is told, whichever stream ended first
    assert (again.role, list(again.processors)) == (pb.ROLE_COORDINATOR, [1, 2])
    app.server.next("progress")
    finish(app, stop)


def test_cycles_in_which_the_oldest_world_leaves(start: Start, stop: Path) -> None:
    app = start("verify", 2, str(stop))
    for _ in range(3):
        assert app.grow(2).committed
        assert app.shrink([0, 1]).committed
    finish(app, stop)


def test_single_slots_come_and_go_anywhere(start: Start, stop: Path) -> None:
    app = start("verify", 3, str(stop))
    for leaver in (0, 2, 1):
        assert app.shrink([leaver]).committed
        assert app.grow(1).committed
    finish(app, stop)


def test_a_joining_rank_that_dies_before_it_connects_disturbs_nobody(
    start: Start, stop: Path
) -> None:
    app = start("verify", 2, str(stop))
    world, processors = app.prepare(2)
    app.go_grow(world, processors, ranks=[0])  # the other one has not heard of it
    pid, port = world.processes[0].pid, int(app.rendezvous.rpartition(":")[2])
    wait_until(lambda: meets(pid, port), what="a joining rank waits for the other")
    for rank in range(2):
        world.processes[rank].kill()
    outcome = app.outcome()
    assert not outcome.committed
    assert outcome.stage == "join"
    assert outcome.epoch == 0
    for processor in processors:
        app.places.pop(processor)[0].wait(processors.index(processor))
    assert app.grow(1).committed
    finish(app, stop)


def test_a_wrong_secret_is_not_admitted(start: Start, stop: Path) -> None:
    app = start("verify", 1, str(stop))
    world, processors = app.prepare(1)
    app.go_grow(world, processors, secret="guessed")
    assert world.wait(0) == 1
    assert "does not prove that it is the running application" in app.text()
    app.places.pop(processors[0])
    withdraw = pb.Withdraw(resize=1, reason="joining ranks ended")
    app.server.send(pb.AppOrder(withdraw=withdraw))
    assert app.server.next("withdrawn").withdrawn.resize == 1
    assert app.grow(1).committed
    finish(app, stop)


#: Answers of a coordinator that does not know the secret.
FALSE_ANSWERS = {
    "a wrong proof": b'{"nonce": "%s", "proof": "%s"}\n' % (b"0f" * 32, b"0f" * 32),
    "a welcome": b'{"protocol": 2, "oldest_reader": 2, "size": 2, "once": ["gARLAS4="]}\n'
    b'{"loop": 1}\n',
    "a refusal": b'{"refused": "no"}\n',
    "a long line": b"x" * 3 * MAX_UNPROVEN_BYTES,
    "nonsense": b"not JSON\n",
}


def test_a_joining_rank_tells_a_false_coordinator_nothing(start: Start, stop: Path) -> None:
    app = start("verify", 1, str(stop))
    for resize, (name, answer) in enumerate(FALSE_ANSWERS.items(), 1):
        world, processors = app.prepare(1)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(60)
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            world.order(0, op="join", address=address, secret=SECRET, resize=resize)
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as sent:
                opening = sent.readline()
                connection.sendall(answer)
                assert world.wait(0) == 1, name
                with suppress(ConnectionResetError):  # it ended before it read all of it
                    assert sent.read() == b"", name
        assert set(json.loads(opening)) == {"protocol", "oldest_reader", "resize", "rank", "nonce"}
        assert SECRET.encode() not in opening
        app.places.pop(processors[0])
        withdraw = pb.Withdraw(resize=resize, reason="joining ranks ended")
        app.server.send(pb.AppOrder(withdraw=withdraw))
        assert app.server.next("withdrawn").withdrawn.resize == resize
    assert app.grow(1).committed
    finish(app, stop)


def test_withdrawn_before_it_began(start: Start, stop: Path) -> None:
    app = start("verify", 2, str(stop))
    world, processors = app.prepare(1)
    app.server.send(pb.AppOrder(withdraw=pb.Withdraw(resize=1, reason="changed my mind")))
    assert app.server.next("withdrawn").withdrawn.resize == 1
    world.controls[0].close()  # the shim is gone: the joining rank ends by itself
    world.processes[0].wait(30)
    app.places.pop(processors[0])
    assert app.grow(1).committed
    finish(app, stop)


def test_the_program_ends_with_an_open_offer(start: Start, stop: Path) -> None:
    app = start("verify", 2, str(stop))
    world, processors = app.prepare(1)
    stop.touch()
    assert app.server.next("withdrawn").withdrawn.resize == 1
    world.processes[0].kill()
    app.places.pop(processors[0])[0].wait(0)
    finish(app, stop)


def test_sizes_outside_the_programs_are_refused(start: Start, stop: Path) -> None:
    app = start("verify", 2, str(stop))
    answer = app.offer(65)
    assert answer.verb == pb.VERB_REJECT
    assert "1-64" in answer.reason
    assert answer.items[0].status == "rejected"
    assert app.offer(2).verb == pb.VERB_REJECT
    finish(app, stop)


def test_joining_ranks_wait_without_using_the_processor(start: Start, stop: Path) -> None:
    app = start("verify", 1, str(stop))
    world, processors = app.prepare(2)
    pid = world.processes[0].pid

    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(1.0)
    assert ticks() - before <= 1
    app.go_grow(world, processors)
    assert app.outcome().committed
    finish(app, stop)


def test_the_server_restarts(start: Start, stop: Path) -> None:
    from standin import Server

    app = start("verify", 2, str(stop))
    assert app.grow(1).committed
    app.server.stop()
    app.server = Server()
    app.address_file.write_text(app.server.address)
    hello = app.server.hellos.get(timeout=60)
    assert (hello.epoch, list(hello.processors)) == (1, [0, 1, 2])
    assert (hello.job, hello.run, hello.token, hello.sizes) == (7, 1, b"", "1-64")
    assert app.grow(1).committed
    finish(app, stop)


def test_a_refused_session_ends_the_program(start: Start, stop: Path) -> None:
    from standin import Server

    app = start(
        "verify", 1, str(stop), server=Server(refuse="sizes 1-64 and 65-70: none in common")
    )
    assert app.wait() == [1]
    assert "none in common" in app.text()


def test_progress_is_reported(start: Start, stop: Path) -> None:
    app = start("verify", 2, str(stop))
    progress = [app.server.next("progress").progress for _ in range(3)]
    wait_until(lambda: progress[-1].iteration > 0)
    assert progress[2].iteration > progress[1].iteration
    assert progress[2].iterations == 1_000_000
    assert all(each.safe_point_age_s >= 0 for each in progress)
    finish(app, stop)


def test_measured_speeds_go_with_the_role_of_the_coordinator(start: Start, stop: Path) -> None:
    app = start("verify", 2, str(stop))

    def measured(size: int) -> set[int]:
        """Wait until a size is measured; all that are."""
        while True:
            found = {each.size: each for each in app.server.next("progress").progress.measured}
            if size in found:
                assert all(each.seconds_per_iteration > 0.001 for each in found.values())
                assert all(each.iterations >= 15 for each in found.values())
                return set(found)

    assert measured(2) == {2}
    assert app.shrink([0]).committed
    assert measured(1) == {1, 2}
    assert app.grow(2).committed
    assert measured(3) == {1, 2, 3}
    assert app.shrink([0]).committed
    assert app.server.next("progress").progress.measured
    answer = app.offer(3)
    assert answer.items[0].estimated_cost_s > 0
    finish(app, stop)


def test_a_growth_that_was_no_gain_is_refused_the_next_time(start: Start, stop: Path) -> None:
    app = start("flat", 1, str(stop))

    def wait_measured(size: int) -> None:
        wait_until(lambda: size in {m.size for m in app.server.next("progress").progress.measured})

    wait_measured(1)
    assert app.grow(1).committed, "it was never tried"
    wait_measured(2)
    assert app.shrink([0]).committed
    answer = app.offer(2)
    assert answer.verb == pb.VERB_REJECT
    assert "iterations that are left would take" in answer.reason
    # An operator offers it, or its user wants every growth.
    assert app.offer(2, skip_gain_test=True).verb == pb.VERB_ACCEPT
    stop.touch()
    assert set(app.wait()) == {0}, app.text()
