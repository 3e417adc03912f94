"""Applications that lie, flood, are silent or die harm themselves: the server keeps its books.

The server checks every invariant after each event and ends when one does not hold.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from pliant.protos import app_pb2
from serverkit import Application, Controller, Server, User
from testkit import wait_until

pytestmark = pytest.mark.cluster

SETTINGS: dict[str, object] = {
    "strategy": "fcfs",
    "offer_timeout_s": 1.0,
    "prepare_timeout_s": 5.0,
    "safe_point_timeout_s": 5.0,
    "resize_deadline_s": 1.0,
    "kill_grace_s": 0.2,
    "settle_s": 0.0,
    "quiet_s": 600.0,
    "session_rate": 20.0,
    "session_burst": 100.0,
}


@dataclass
class Stage:
    """A server, a node with eight slots, and an application with four of them."""

    server: Server
    node: Controller
    user: User
    start: Any = None
    app: Any = None

    def begin(self) -> None:
        """Start a job with its application on four of the eight slots."""
        self.user.submit(sizes="1-8", prefer=4)
        self.start = self.node.find("start_world")
        self.node.ready(self.start)
        self.app = Application(self.start, sizes="1-8")
        self.app.expect("welcome")
        wait_until(lambda: "application.registered" in self.kinds())
        assert self.used() == 4

    def end(self) -> None:
        """Have the job end by itself."""
        self.app.close()
        self.node.exit(self.start)
        self.user.do("wait", id=self.job)

    @property
    def job(self) -> int:
        return int(self.start.job)

    def used(self) -> int:
        return int(self.user.do("nodes")["nodes"][0]["used"])

    def info(self) -> dict[str, Any]:
        return self.user.job(self.job)

    def kinds(self) -> list[str]:
        return self.user.kinds(self.job)

    def offer(self, size: int) -> Any:
        """Have an operator ask for a size; the offer that follows."""
        self.user.do("resize", id=self.job, size=size)
        return self.app.find("offer")

    def say(self, **report: Any) -> None:
        self.app.say(app_pb2.AppReport(**report))

    def accept(self, offer: Any) -> None:
        offer.verb = app_pb2.VERB_ACCEPT
        self.say(answer=offer)

    def outcome(self, go: Any, processors: range, *, epoch: int = 0) -> None:
        done = app_pb2.Outcome(
            resize=go.resize, committed=True, epoch=epoch or go.epoch, processors=processors
        )
        self.say(outcome=done)

    def grow(self) -> tuple[Any, Any]:
        """Go as far as GO; the joining ranks' world and the GO."""
        self.accept(self.offer(6))
        joining_ranks = self.node.find("start_world")
        self.node.ready(joining_ranks)
        return joining_ranks, self.app.find("go")

    def heard(self) -> None:
        """Wait until all that was said has been handled: what is said last is seen."""
        step = (self.info()["progress"] or {}).get("iteration", 0) + 1
        self.say(progress=app_pb2.Progress(iteration=step))
        wait_until(lambda: (self.info()["progress"] or {}).get("iteration") == step)
        self.user.do("why", id=self.job)  # is answered by the core, after what came before

    def check(self, used: int) -> None:
        """Four or more of its processors are the job's; another job passes beside it."""
        wait_until(lambda: self.used() == used, what=f"{used} processors in use")
        other = self.user.submit(sizes="1")
        start = self.node.find("start_world")
        assert start.job == other
        self.node.exit(start)
        assert self.user.do("wait", id=other)["job"]["state"] == "COMPLETED"
        assert self.used() == used

    def no_order(self, timeout: float = 0.3) -> None:
        """Nothing is asked of the node."""
        with pytest.raises(queue.Empty):
            self.node.inbox.get(timeout=timeout)


@pytest.fixture
def stage(make_server: Callable[..., Server]) -> Iterator[Stage]:
    server = make_server(**SETTINGS).start()
    node = server.controller(slots=8).welcome()
    with server.user() as user:
        stage = Stage(server, node, user)
        stage.begin()
        yield stage
        stage.app.close()
        node.close()


# ---------------------------------------------------------------- silent, late, doubled, disordered


@pytest.mark.case(36)
def test_an_application_that_never_answers_keeps_its_size(stage: Stage) -> None:
    stage.offer(6)
    wait_until(lambda: "offer.expired" in stage.kinds())
    assert (stage.info()["state"], stage.info()["processors"]) == ("RUNNING", 4)
    stage.check(4)


@pytest.mark.case(37)
def test_a_late_answer_changes_nothing(stage: Stage) -> None:
    for expired, size in enumerate((2, 6), start=1):
        offer = stage.offer(size)
        wait_until(lambda expired=expired: stage.kinds().count("offer.expired") == expired)  # type: ignore[misc]
        stage.accept(offer)
        stage.heard()
        stage.no_order()
        assert "resize.go" not in stage.kinds()
    stage.check(4)


@pytest.mark.case(37)
def test_a_repeated_answer_counts_once(stage: Stage) -> None:
    offer = stage.offer(6)
    stage.accept(offer)
    stage.accept(offer)
    joining_ranks = stage.node.find("start_world")
    stage.node.ready(joining_ranks)
    go = stage.app.find("go")
    for _ in range(2):
        stage.say(begun=app_pb2.Begun(resize=go.resize))
    for _ in range(2):
        stage.outcome(go, range(6))
    stage.heard()
    assert stage.kinds().count("job.resized") == 1
    assert stage.info()["epoch"] == go.epoch
    stage.check(6)


def test_out_of_order(stage: Stage) -> None:
    """It has done everything before it was asked, and then takes everything back."""
    offer = stage.offer(6)
    early = app_pb2.Go(resize=offer.negotiation, epoch=2)
    stage.say(begun=app_pb2.Begun(resize=early.resize))
    stage.outcome(early, range(6))
    stage.say(withdrawn=app_pb2.Withdrawn(resize=early.resize + 7))
    stage.heard()
    assert stage.info()["epoch"] == 1
    offer.verb = app_pb2.VERB_REJECT
    stage.say(answer=offer)
    stage.accept(offer)
    stage.say(begun=app_pb2.Begun(resize=early.resize))
    stage.heard()
    assert not {"resize.go", "job.resized"} & set(stage.kinds())
    stage.check(4)


def test_an_outcome_before_go(stage: Stage) -> None:
    stage.accept(stage.offer(6))
    joining_ranks = stage.node.find("start_world")
    stage.outcome(app_pb2.Go(resize=joining_ranks.resize, epoch=2), range(6))
    stage.heard()
    assert stage.info()["epoch"] == 1
    stage.node.ready(joining_ranks)
    stage.outcome(stage.app.find("go"), range(6))
    stage.heard()
    stage.check(6)


# ---------------------------------------------------------------- greedy, lying


def test_a_counter_offer_above_the_offer_is_declined(stage: Stage) -> None:
    offer = stage.offer(6)
    offer.verb, offer.round = app_pb2.VERB_COUNTER, offer.round + 1
    offer.items[0].quantity, offer.items[0].sizes = 4, "8"
    stage.say(answer=offer)
    stage.heard()
    stage.no_order()
    stage.check(4)


@pytest.mark.case(38)
def test_accepting_more_than_was_offered_is_refused(stage: Stage) -> None:
    offer = stage.offer(6)
    offer.items[0].quantity, offer.items[0].sizes = 4, "8"
    stage.accept(offer)
    stage.heard()
    stage.no_order()
    stage.check(4)


@pytest.mark.case(38)
def test_an_application_that_claims_other_processors_is_ended(stage: Stage) -> None:
    for processors in (range(8), range(2, 8), range(5)):
        _claim(stage, processors)
        stage.check(0)
        stage.begin()


def _claim(stage: Stage, processors: range) -> None:
    joining_ranks, go = stage.grow()
    stage.say(begun=app_pb2.Begun(resize=go.resize))
    stage.outcome(go, processors)
    kill = stage.node.find("kill")
    assert kill.job == stage.job
    for world in (stage.start, joining_ranks):
        stage.node.exit(world, code=1)
    info = stage.user.do("wait", id=stage.job)["job"]
    assert info["state"] == "FAILED"
    assert f"the application reports epoch 2 on processors {list(processors)}" in info["reason"]
    stage.app.close()


@pytest.mark.case(39)
def test_processors_are_reused_only_when_no_process_is_left_on_them(stage: Stage) -> None:
    offer = stage.offer(2)
    waiting = stage.user.submit(sizes="6")
    stage.accept(offer)
    go = stage.app.find("go")
    stage.say(begun=app_pb2.Begun(resize=go.resize))
    stage.outcome(go, range(2))  # and its leavers stay
    stage.heard()
    assert (stage.info()["epoch"], stage.used()) == (2, 4)
    kill = stage.node.find("kill")  # when the deadline has passed; nothing was started until then
    assert (kill.job, sorted(kill.processors)) == (stage.job, [2, 3])
    stage.no_order()
    assert stage.user.job(waiting)["state"] == "PENDING"
    stage.node.say(exits_of(stage.start, [2, 3]))
    assert stage.node.find("start_world").job == waiting
    assert stage.info()["state"] == "RUNNING"


def exits_of(start: Any, ranks: list[int]) -> Any:
    from pliant.protos import node_pb2

    ends = [node_pb2.RankExit(rank=r, processor=start.ranks[r].processor, signal=9) for r in ranks]
    report = node_pb2.RanksExited(
        world=start.world, job=start.job, run=start.run, resize=start.resize, exits=ends
    )
    return node_pb2.NodeReport(ranks_exited=report)


def test_a_former_coordinator_does_not_take_the_place_of_the_present_one(stage: Stage) -> None:
    stage.accept(stage.offer(2))
    go = stage.app.find("go")
    stage.outcome(go, range(2))
    stage.heard()
    former = Application(stage.start, sizes="1-8")  # a leaver: what it says is of before
    former.expect("welcome")
    stage.heard()
    stage.node.say(exits_of(stage.start, [2, 3]))
    wait_until(lambda: stage.info()["state"] == "RUNNING")
    assert stage.offer(4).items[0].sizes == "4"
    former.close()


# ---------------------------------------------------------------- another's job


@pytest.mark.case(42)
def test_an_application_with_another_token_is_refused(stage: Stage) -> None:
    other = stage.user.submit(sizes="2")
    theirs = stage.node.find("start_world")
    thief = Application(theirs, token=stage.start.token)
    assert thief.failure() == "wrong token"
    thief.close()
    assert stage.user.job(other)["state"] == "STARTING"
    stage.heard()


@pytest.mark.case(42)
def test_messages_about_another_job_are_ignored(stage: Stage) -> None:
    """Its own token opens its session; the number of another's resize is no key to that."""
    stage.user.submit(sizes="1-4", prefer=2)
    theirs = stage.node.find("start_world")
    thief = Application(theirs, sizes="1-4")
    thief.expect("welcome")
    joining_ranks, go = stage.grow()
    thief.say(app_pb2.AppReport(withdrawn=app_pb2.Withdrawn(resize=go.resize)))
    rolled_back = app_pb2.Outcome(resize=go.resize, committed=False, stage="join")
    thief.say(app_pb2.AppReport(outcome=rolled_back))
    thief.say(app_pb2.AppReport(answer=app_pb2.Template(negotiation=1, job=stage.job)))
    assert thief.ended.wait(30), "it spoke for another job: its session is closed"
    thief.close()
    stage.outcome(go, range(6))
    stage.heard()
    assert stage.info()["held"] == len(joining_ranks.ranks) + 4


# ---------------------------------------------------------------- flooding


@pytest.mark.case(41)
def test_a_flood_closes_its_own_session(stage: Stage) -> None:
    stage.user.submit(sizes="1-4", prefer=2)
    theirs = stage.node.find("start_world")
    flood = Application(theirs, sizes="1-4")
    flood.expect("welcome")
    for iteration in range(5000):
        flood.say(app_pb2.AppReport(progress=app_pb2.Progress(iteration=iteration)))
    stage.grow()  # beside it
    assert flood.ended.wait(30)
    assert isinstance(flood.error, grpc.Call)
    assert flood.error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "more than 20 messages a second, 100 at once" in str(flood.error.details())
    flood.close()
    assert (stage.user.job(int(theirs.job))["progress"] or {}).get("iteration", 0) < 200
    assert stage.server.log().count("exceeded its rate limit") == 1


def test_who_comes_back_after_a_flood_has_no_new_bucket(stage: Stage) -> None:
    for _ in range(200):
        stage.say(progress=app_pb2.Progress())
    assert stage.app.ended.wait(30)
    again = Application(stage.start, sizes="1-8")
    again.expect("welcome")
    for _ in range(100):
        again.say(app_pb2.AppReport(progress=app_pb2.Progress()))
    assert again.ended.wait(30)
    again.close()
    stage.app.close()

    def back() -> bool:
        """Whether it is heard again; each try is a message, so that it must wait a while."""
        stage.app = Application(stage.start, sizes="1-8")
        stage.app.expect("welcome")
        stage.say(progress=app_pb2.Progress(iteration=7))
        heard = not stage.app.ended.wait(0.5)
        if not heard:
            stage.app.close()
        return heard

    wait_until(back)
    stage.check(4)


# ---------------------------------------------------------------- dying


@pytest.mark.parametrize("size", [2, 6])
def test_an_application_that_dies(stage: Stage, size: int) -> None:
    """Its stream and its processes end at once; joining ranks are ended, nothing stays reserved."""
    for step in range(5):
        joining_ranks = _go_as_far_as(stage, size, step)
        stage.app.close()
        stage.node.exit(stage.start, code=1)
        if joining_ranks is not None:
            stage.node.find("kill")
            stage.node.exit(joining_ranks, code=1)
        info = stage.user.do("wait", id=stage.job)["job"]
        assert (info["state"], info["exit_code"]) == ("FAILED", 1)
        stage.check(0)
        stage.begin()


def _go_as_far_as(stage: Stage, size: int, step: int) -> Any:
    """Offer, agreement, GO, safe point, outcome; the world of the joining ranks, if any."""
    joining_ranks = None
    offer = stage.offer(size)
    if step >= 1:
        stage.accept(offer)
        joining_ranks = stage.node.find("start_world") if size > 4 else None
    if step >= 2:
        if joining_ranks is not None:
            stage.node.ready(joining_ranks)
        go = stage.app.find("go")
        if step >= 3:
            stage.say(begun=app_pb2.Begun(resize=go.resize))
        if step >= 4:
            stage.outcome(go, range(size))
            stage.heard()
    return joining_ranks
