"""Real ranks that ask for other sizes; all of them check in each step that they see the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.protos import app_pb2 as pb
from standin import Application, Server
from testkit import wait_until

from ..conftest import Start

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]

PROGRAM = "../../e2e/apps/evolving"


class Asking:
    """The evolving program, and a server that says what the test wants."""

    def __init__(self, start: Start, folder: Path, size: int) -> None:
        self.folder = folder
        self.app: Application = start(PROGRAM, size, str(folder))
        hello = self.app.next_hello()
        assert (hello.on_request, hello.HasField("request")) == (True, False)

    def say(self, text: str) -> None:
        (self.folder / "new").write_text(text)
        (self.folder / "new").rename(self.folder / "say")
        wait_until(lambda: not (self.folder / "say").exists(), what=f"{text!r} to be read")

    def sees(self, text: str) -> None:
        wait_until(lambda: text in self.app.text(), what=f"{text!r} in {self.app.text()}")

    def asked(self) -> pb.RequestSizes:
        return self.app.server.next("request").request

    def answer(self, number: int, outcome: pb.RequestOutcome.ValueType, size: int) -> None:
        answer = pb.RequestAnswer(number=number, outcome=outcome, size=size, reason="as you see")
        self.app.server.send(pb.AppOrder(request_answer=answer))

    def finish(self) -> None:
        self.say("stop")
        assert set(self.app.wait()) == {0}, self.app.text()


def test_the_next_coordinator_and_joining_ranks_know_the_request(
    start: Start, tmp_path: Path
) -> None:
    asking = Asking(start, tmp_path, 3)
    app = asking.app
    asking.say("request 2-8")
    asked = asking.asked()
    assert (asked.number, asked.sizes, asked.reason) == (1, "2-8", "the test says so")
    assert app.shrink([0]).committed
    again = app.server.next("hello").hello
    assert (again.request, again.cancelled) == (asked, False)
    assert app.grow(2).committed
    asking.sees("4 processes, request 2-8: pending at 0")
    asking.answer(1, pb.REQUEST_OUTCOME_PARTLY, 4)
    asking.sees("4 processes, request 2-8: granted in part at 4 as you see")
    assert app.shrink([0, 1]).committed
    assert not app.server.next("hello").hello.HasField("request"), "it is answered"
    asking.say("request 8")
    assert asking.asked().number == 2
    asking.finish()


def test_a_release_moves_the_job_as_the_server_takes_it(start: Start, tmp_path: Path) -> None:
    asking = Asking(start, tmp_path, 3)
    app = asking.app
    asking.say("release 2")
    assert asking.asked().sizes == "1"
    item = pb.Item(kind="processors", quantity=2, direction=pb.DIRECTION_RELEASE, sizes="1")
    taken = pb.Template(negotiation=1, job=7, round=1, verb=pb.VERB_ACCEPT, items=[item])
    app.server.send(pb.AppOrder(offer=taken))
    app.server.send(pb.AppOrder(go=pb.Go(resize=1, epoch=1, leaving_ranks=[1, 2])))
    outcome = app.server.next("outcome").outcome
    assert (outcome.committed, list(outcome.processors)) == (True, [0])
    asking.answer(1, pb.REQUEST_OUTCOME_GRANTED, 1)
    asking.sees("1 processes, request 1: granted at 1")
    asking.finish()


def test_a_server_that_was_away_hears_of_what_was_cancelled(start: Start, tmp_path: Path) -> None:
    asking = Asking(start, tmp_path, 2)
    app = asking.app
    asking.say("request 4")
    asking.asked()
    app.server.stop()
    asking.say("cancel")
    asking.sees("2 processes, request 4: cancelled at 0 by the program")
    app.server = Server()
    app.address_file.write_text(app.server.address)
    hello = app.server.hellos.get(timeout=60)
    assert (hello.request.number, hello.cancelled) == (1, True)
    asking.answer(1, pb.REQUEST_OUTCOME_CANCELLED, 2)
    asking.say("request 6")
    assert asking.asked().number == 2
    asking.finish()
