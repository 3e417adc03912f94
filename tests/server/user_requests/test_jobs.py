"""A job's way through a real server, with a controller that only pretends."""

from __future__ import annotations

import json
import queue
import signal
from collections.abc import Callable, Iterator

import grpc
import pytest

from pliant.protos import app_pb2
from serverkit import Application, Controller, Server, User, job_request
from testkit import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def node(server: Server) -> Iterator[Controller]:
    controller = server.controller(slots=4).welcome()
    yield controller
    controller.close()


def ended(user: User, job: int) -> dict[str, object]:
    result: dict[str, object] = user.do("wait", id=job)["job"]
    return result


def test_a_job_is_launched_and_its_end_is_acknowledged(node: Controller, user: User) -> None:
    job = user.submit(sizes="2", argv=["prog", "caf\udce9"], env={"B": "x\udcff"}, umask=0o77)
    start = node.expect("start_world")
    assert (start.job, start.run, start.resize, start.world_size) == (job, 1, 0, 2)
    assert list(start.argv) == [b"prog", b"caf\xe9"]
    assert b"B=x\xff" in start.environment
    assert start.stdout == f"/tmp/pliant-{job}.out".encode()
    assert start.process_mapping == "(vector,(0,1,2))"
    assert not start.spans_nodes
    assert start.node_list == b"127.0.0.1:2\n"
    assert start.umask == 0o77
    assert [place.processor for place in start.ranks] == [0, 1]
    node.exit(start)
    ack = node.find("exit_ack")
    assert (ack.world, list(ack.ranks)) == (start.world, [0, 1])
    info = ended(user, job)
    assert (info["state"], info["exit_code"]) == ("COMPLETED", 0)
    assert user.kinds(job)[0] == "job.submitted"
    assert user.kinds(job)[-1] == "job.ended"


def test_an_end_reported_twice_is_acknowledged_twice_and_counted_once(
    node: Controller, user: User
) -> None:
    job = user.submit(sizes="2")
    start = node.expect("start_world")
    node.exit(start, code=3)
    node.exit(start, code=0)
    assert node.find("exit_ack").world == start.world
    assert node.find("exit_ack").world == start.world
    info = ended(user, job)
    assert (info["state"], info["exit_code"]) == ("FAILED", 3)
    assert user.kinds(job).count("job.ended") == 1


def test_ranks_on_two_nodes_share_barriers(server: Server, node: Controller, user: User) -> None:
    other = server.controller("n2", 4).welcome()
    user.submit(sizes="6")
    first, second = node.expect("start_world"), other.expect("start_world")
    assert first.spans_nodes
    assert first.process_mapping == "(vector,(0,1,4),(1,1,2))"
    assert list(second.processors) == [0, 1, 2, 3, 4, 5]
    node.barrier(first.world, 1, {"a": "1"})
    other.barrier(first.world, 1, {"b": "2"})
    for controller in (node, other):
        assert dict(controller.expect("fence_done").pairs) == {"a": "1", "b": "2"}
    other.barrier(first.world, 1, {"b": "2"})
    assert dict(other.expect("fence_done").pairs) == {"a": "1", "b": "2"}
    with pytest.raises(queue.Empty):
        node.inbox.get(timeout=0.2)
    other.close()


def test_a_cancelled_job_is_killed(node: Controller, user: User) -> None:
    job = user.submit(sizes="1")
    start = node.expect("start_world")
    assert user.do("cancel", ids=[job, 77]) == {
        "ok": True,
        "results": [
            {"id": job, "ok": True},
            {"id": 77, "ok": False, "error": "there is no job 77"},
        ],
    }
    assert node.expect("kill").job == job
    node.exit(start)
    assert ended(user, job)["state"] == "CANCELLED"


def test_hold_and_release(node: Controller, user: User) -> None:
    job = user.submit(hold=True)
    wait_until(lambda: user.do("jobs", ids=[job])["jobs"])
    assert user.job(job)["state"] == "HELD"
    user.do("release", id=job)
    assert node.expect("start_world").job == job


def test_nodes_and_why(node: Controller, user: User) -> None:
    job = user.submit(sizes="4")
    node.expect("start_world")
    waiting = user.submit(sizes="2")
    wait_until(lambda: user.job(waiting)["reason"])
    answer = user.do("nodes")
    assert answer["nodes"][0]["used"] == 4
    assert answer["nodes"][0]["jobs"] == [job]
    assert answer["nodes"][0]["connected"] is True
    assert answer["strategy"] == "equipartition"
    assert any("4 usable" in line for line in user.do("why", id=waiting)["text"])
    assert user.do("why", id=job)["text"][-1].startswith("what it prints is in /")
    assert user.ask("why", id=99)["error"]["kind"] == "not_found"


def test_a_controller_that_is_gone_is_not_connected(node: Controller, user: User) -> None:
    node.close()
    wait_until(lambda: not user.do("nodes")["nodes"][0]["connected"])


def test_a_drained_node_gets_no_work(node: Controller, user: User) -> None:
    user.do("drain", node="n1", reason="repair")
    job = user.submit()
    with pytest.raises(queue.Empty):
        node.inbox.get(timeout=0.3)
    assert user.do("nodes")["nodes"][0]["reason"] == "repair"
    user.do("resume", node="n1")
    assert node.expect("start_world").job == job


# ------------------------------------------------------------------ applications


def test_an_application_is_offered_more_and_joined(
    server: Server, node: Controller, user: User
) -> None:
    job = user.submit(sizes="1-8")
    start = node.expect("start_world")
    application = Application(start, sizes="1-8")
    application.expect("welcome")
    other = server.controller("n2", 4).welcome()
    offer = application.expect("offer")
    assert (offer.job, offer.items[0].quantity) == (job, 4)
    offer.verb = app_pb2.VERB_ACCEPT
    application.say(app_pb2.AppReport(answer=offer))
    joining_ranks = other.expect("start_world")
    assert joining_ranks.resize == offer.negotiation
    other.ready(joining_ranks)
    join = other.expect("control")
    go = application.expect("go")
    assert list(go.joining_processors) == [4, 5, 6, 7]
    assert json.loads(join.message) == {
        "op": "join",
        "address": "127.0.0.1:9",
        "secret": go.secret,
        "resize": go.resize,
    }
    application.say(app_pb2.AppReport(begun=app_pb2.Begun(resize=go.resize)))
    outcome = app_pb2.Outcome(resize=go.resize, committed=True, epoch=go.epoch, processors=range(8))
    application.say(app_pb2.AppReport(outcome=outcome))
    wait_until(lambda: user.job(job)["processors"] == 8)
    assert user.job(job)["class"] == "malleable"
    application.say(app_pb2.AppReport(progress=app_pb2.Progress(safe_point_age_s=0.5, iteration=7)))
    wait_until(lambda: (user.job(job)["progress"] or {}).get("iteration") == 7)
    application.close()
    other.close()


def test_sessions_show_the_token_of_their_own_run(node: Controller, user: User) -> None:
    user.submit(sizes="1")
    start = node.expect("start_world")
    stranger = Application(start, token=b"0" * 64)
    assert stranger.failure() == "wrong token"
    stranger.close()
    node.exit(start)
    node.find("exit_ack")
    late = Application(start)
    assert "is over" in late.expect("refused").reason
    late.close()


def test_a_second_coordinator_takes_the_place_of_the_first(node: Controller, user: User) -> None:
    job = user.submit(sizes="1-4")
    start = node.expect("start_world")
    first = Application(start, sizes="1-4")
    first.expect("welcome")
    second = Application(start, sizes="1-4")
    second.expect("welcome")
    assert first.ended.wait(30)
    wait_until(lambda: user.job(job)["state"] == "RUNNING")
    first.close()
    second.close()


# ------------------------------------------------------------------ nodes


@pytest.mark.usefixtures("node")
def test_nodes_that_may_not_register(server: Server) -> None:
    for name, slots, fields, text in [
        ("n1", 4, {}, "connected already"),
        ("n1", 8, {}, "connected already"),
        ("no name", 4, {}, "no name for a node"),
        ("n5", 0, {}, "slots: expected 1 to 65536"),
        ("n6", 2, {"generation": 99}, "old copy of the database"),
    ]:
        wrong = server.controller(name, slots, **fields)
        refused = wrong.expect("refused")
        assert text in refused.reason
        assert refused.taken == ("already" in text)
        wrong.close()


def leave(server: Server, node: Controller) -> None:
    """End a controller; return when the server has seen it."""
    node.close()
    wait_until(lambda: "n1: stream closed" in server.log())


@pytest.mark.case(34)
def test_a_node_changes_its_slots_when_nothing_is_on_it(
    server: Server, node: Controller, user: User
) -> None:
    job = user.submit(sizes="2")
    start = node.expect("start_world")
    leave(server, node)
    wrong = server.controller("n1", 8)
    assert "has 4 slots here, not 8" in wrong.expect("refused").reason
    wrong.close()
    back = server.controller("n1", 4).welcome()
    back.exit(start)
    assert ended(user, job)["nodes"] == ["n1"]
    server.stop()
    back.close()
    server.start()
    larger = server.controller("n1", 8).welcome()
    with server.user() as again:
        (shown,) = again.do("nodes")["nodes"]
        assert (shown["slots"], shown["state"]) == (8, "UP")
        again.submit(sizes="8")
        assert larger.expect("start_world").world_size == 8
    larger.close()


def test_a_node_is_removed_for_good(server: Server, node: Controller, user: User) -> None:
    gone = server.controller("n2", 16).welcome()
    job = user.submit(sizes="20")
    start, other = node.expect("start_world"), gone.expect("start_world")
    assert "connected: stop its controller" in user.ask("remove", node="n2")["error"]["message"]
    assert user.ask("remove", node="n3")["error"]["message"] == "there is no node n3"
    gone.exit(other)
    node.exit(start)
    ended(user, job)
    gone.close()
    wait_until(lambda: "n2: stream closed" in server.log())
    assert user.do("remove", node="n2")["message"] == "node n2 removed"
    assert [each["name"] for each in user.do("nodes")["nodes"]] == ["n1"]
    request = job_request(sizes="5")
    assert "the cluster has 4 processors" in user.ask("submit", job=request)["error"]["message"]
    server.stop()
    server.start()
    with server.user() as again:
        assert [each["name"] for each in again.do("nodes")["nodes"]] == ["n1"]


@pytest.mark.case(33)
@pytest.mark.parametrize("secret", ["", "0" * 64, "\x7e"])
def test_only_a_node_that_knows_the_secret_may_register(server: Server, secret: str) -> None:
    stranger = server.controller("n1", 4, secret=secret)
    assert stranger.ended.wait(30)
    assert isinstance(stranger.error, grpc.Call)
    assert stranger.error.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "--secret-file" in str(stranger.error.details())
    stranger.close()
    with server.user() as user:
        assert user.do("nodes")["nodes"] == []
    assert "a stream is not authenticated" in server.log()


@pytest.mark.case(26)
def test_a_silent_node_is_suspected_then_lost(make_server: Callable[..., Server]) -> None:
    server = make_server(beat_interval_s=0.2, lease_s=1.5).start()
    node = server.controller().welcome()
    with server.user() as user:
        job = user.submit(sizes="2")
        node.expect("start_world")

        def state() -> str:
            return str(user.do("nodes")["nodes"][0]["state"])

        wait_until(lambda: state() == "SUSPECT", every=0.05)
        node.beat()
        wait_until(lambda: state() == "UP")
        node.close()  # a stream that closes is no sign of death
        assert state() == "UP"
        wait_until(lambda: state() == "LOST", every=0.05)
        assert user.do("wait", id=job)["job"]["state"] == "NODE_FAIL"
        back = server.controller().welcome()
        wait_until(lambda: state() == "UP")
        back.close()


# ------------------------------------------------------------------ restarts


def test_what_was_acknowledged_survives_a_kill(server: Server) -> None:
    node = server.controller(slots=2).welcome()
    with server.user() as user:
        running = user.submit(sizes="2", key="only-once")
        assert user.submit(sizes="2", key="only-once") == running
        start = node.expect("start_world")
        waiting = [user.submit(sizes="1", name=f"w{number}") for number in range(20)]
    address = server.address
    server.stop(signal.SIGKILL)
    node.close()
    server.start()
    assert server.address == address
    with server.user() as user:
        assert user.do("ping")["generation"] == 2
        jobs = {job["id"]: job for job in user.do("jobs")["jobs"]}
        assert sorted(jobs) == sorted([running, *waiting])
        assert jobs[waiting[0]]["name"] == "w0"
        again = server.controller(slots=2).welcome()
        same = again.expect("start_world")  # the node does not list the world: it is sent again
        assert (same.world, same.token) == (start.world, start.token)
        assert list(same.argv) == list(start.argv)
        again.exit(same)
        assert again.find("exit_ack").world == start.world
        assert user.do("wait", id=running)["job"]["state"] == "COMPLETED"
        assert user.submit(sizes="1") == max(waiting) + 1
        again.close()


def test_an_end_that_was_stored_before_a_kill_is_only_acknowledged(server: Server) -> None:
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        job = user.submit(sizes="2")
        start = node.expect("start_world")
        only_first = node_report_of(start, rank=0, code=5)
        node.say(only_first)
        node.find("exit_ack")
    server.stop(signal.SIGKILL)
    node.close()
    server.start()
    again = server.controller(slots=4).welcome()
    again.say(node_report_of(start, rank=0, code=0))
    again.find("exit_ack")
    again.say(node_report_of(start, rank=1, code=0))
    with server.user() as user:
        info = user.do("wait", id=job)["job"]
    assert (info["state"], info["exit_code"]) == ("FAILED", 5)
    again.close()


def node_report_of(start: object, rank: int, code: int) -> object:
    from pliant.protos import node_pb2

    assert isinstance(start, node_pb2.StartWorld)
    place = start.ranks[rank]
    end = node_pb2.RankExit(rank=place.rank, processor=place.processor, code=code)
    report = node_pb2.RanksExited(
        world=start.world, job=start.job, run=start.run, resize=start.resize, exits=[end]
    )
    return node_pb2.NodeReport(ranks_exited=report)


@pytest.mark.case(12)
def test_a_stop_answers_waiting_users(server: Server) -> None:
    node = server.controller().welcome()
    user = server.user()
    job = user.submit()
    node.expect("start_world")
    user.send(json.dumps({"op": "wait", "id": job}).encode() + b"\n")
    with server.user() as later:
        later.do("ping")  # who came before has been heard
    assert server.stop() == 0
    assert user.receive()["error"]["kind"] == "stopping"
    assert not (server.run / "server.pid").exists()
    user.close()
    node.close()


def test_the_request_of_a_test_is_valid() -> None:
    assert job_request()["argv"] == ["true"]
