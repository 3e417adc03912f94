"""What applications ask for and measure, with a coordinator that only pretends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from pliant.protos import app_pb2, node_pb2
from serverkit import Application, Controller, Server, User
from testkit import wait_until

pytestmark = pytest.mark.cluster

GRANTED = app_pb2.REQUEST_OUTCOME_GRANTED
REFUSED = app_pb2.REQUEST_OUTCOME_REFUSED
CANCELLED = app_pb2.REQUEST_OUTCOME_CANCELLED


@pytest.fixture
def server(make_server: Callable[..., Server]) -> Server:
    """Return a server whose jobs start at the size that they prefer."""
    return make_server(strategy="fcfs").start()


@pytest.fixture
def node(server: Server) -> Iterator[Controller]:
    controller = server.controller(slots=4).welcome()
    yield controller
    controller.close()


def asks(number: int, sizes: str, **more: object) -> app_pb2.AppReport:
    request = app_pb2.RequestSizes(number=number, sizes=sizes, **more)  # type: ignore[arg-type]
    return app_pb2.AppReport(request=request)


def fill(user: User, node: Controller) -> node_pb2.StartWorld:
    """Take the last two processors, so that nothing is left to grow into."""
    user.submit(sizes="2")
    start: node_pb2.StartWorld = node.expect("start_world")
    return start


def living(start: node_pb2.StartWorld) -> node_pb2.LiveWorld:
    return node_pb2.LiveWorld(
        world=start.world,
        job=start.job,
        run=start.run,
        live_processors=[place.processor for place in start.ranks],
    )


def evolving(node: Controller, sizes: str = "1-4", **fields: object) -> Application:
    """Start the application of the job that was submitted last."""
    application = Application(node.expect("start_world"), sizes=sizes, on_request=True, **fields)
    application.expect("welcome")
    return application


def test_an_evolving_job_is_resized_on_request_only(node: Controller, user: User) -> None:
    job = user.submit(sizes="1-4", prefer=1)
    application = evolving(node)
    wait_until(lambda: "application.registered" in user.kinds(job))
    text = "its size changes only when its program asks for that"
    assert text in user.do("why", id=job)["text"]
    assert "offer.sent" not in user.kinds(job)
    application.say(asks(1, "1-3", reason="the mesh is finer"))
    offer = application.expect("offer")
    assert offer.items[0].sizes == "3"
    offer.verb = app_pb2.VERB_ACCEPT
    application.say(app_pb2.AppReport(answer=offer))
    joining_ranks = node.expect("start_world")
    node.ready(joining_ranks)
    go = application.expect("go")
    outcome = app_pb2.Outcome(resize=go.resize, committed=True, epoch=go.epoch, processors=range(3))
    application.say(app_pb2.AppReport(outcome=outcome))
    answer = application.expect("request_answer")
    assert (answer.number, answer.outcome, answer.size) == (1, GRANTED, 3)
    application.say(asks(1, "1-3"))
    assert application.expect("request_answer") == answer
    application.close()


def test_a_release_is_taken_as_it_is_offered(node: Controller, user: User) -> None:
    user.submit(sizes="1-4", prefer=4)
    application = evolving(node)
    application.say(asks(1, "3"))
    word = application.expect("offer")
    assert (word.verb, word.items[0].sizes) == (app_pb2.VERB_ACCEPT, "3")
    assert application.expect("go").leaving_ranks == [3]
    application.close()


def test_requests_that_cannot_be_are_refused_with_a_reason(node: Controller, user: User) -> None:
    user.submit(sizes="1-4", prefer=1)
    application = evolving(node)
    application.say(asks(1, "7"))
    answer = application.expect("request_answer")
    assert (answer.number, answer.outcome, answer.size) == (1, REFUSED, 1)
    assert answer.reason == "none of 7 is one of its sizes 1-4"
    application.close()


def test_a_request_that_is_taken_back_is_answered(node: Controller, user: User) -> None:
    job = user.submit(sizes="1-4", prefer=2)
    application = evolving(node)
    fill(user, node)
    application.say(asks(1, "3-4"))
    wait_until(lambda: "request.received" in user.kinds(job))
    application.say(app_pb2.AppReport(cancel=app_pb2.CancelRequest(number=1)))
    answer = application.expect("request_answer")
    assert (answer.number, answer.outcome) == (1, CANCELLED)
    application.close()


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_restarted_server_hears_of_the_request_in_hello(server: Server, cancelled: bool) -> None:
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        job = user.submit(sizes="1-4", prefer=2)
        start = node.expect("start_world")
        application = Application(start, sizes="1-4", on_request=True)
        application.expect("welcome")
        other = fill(user, node)
        wait_until(lambda: "application.registered" in user.kinds(job))
        if cancelled:
            application.say(asks(1, "3"))
            wait_until(lambda: "request.received" in user.kinds(job))
    server.stop(signal.SIGKILL)
    for peer in (application, node):
        peer.close()
    server.start()
    hello = app_pb2.RequestSizes(number=1, sizes="3")
    again = Application(start, sizes="1-4", on_request=True, request=hello, cancelled=cancelled)
    again.expect("welcome")
    node = server.controller(slots=4, worlds=[living(start), living(other)]).welcome()
    if cancelled:
        assert again.expect("request_answer").outcome == CANCELLED
    else:
        node.exit(other)
        assert again.find("offer").items[0].sizes == "3"
    for peer in (again, node):
        peer.close()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"number": 0, "sizes": "2"}, "number"),
        ({"number": 1, "sizes": ""}, "sizes"),
        ({"number": 1, "sizes": "many"}, "many"),
        ({"number": 1, "sizes": "2", "preferred": 3}, "preferred"),
        ({"number": 1, "sizes": "2", "reason": "x" * 1001}, "reason"),
        ({"number": 1, "sizes": "2", "deadline_s": float("nan")}, "deadline_s"),
    ],
)
def test_a_request_that_is_nonsense_closes_the_session(
    server: Server, node: Controller, user: User, fields: dict[str, object], text: str
) -> None:
    user.submit(sizes="1-4", prefer=2)
    application = evolving(node)
    request = app_pb2.RequestSizes(**fields)  # type: ignore[arg-type]
    application.say(app_pb2.AppReport(request=request))
    assert application.ended.wait(30)
    assert (
        f"sent an invalid message, session closed: {text}" in server.log() or text in server.log()
    )
    application.close()


def test_measured_speeds_are_shown(node: Controller, user: User) -> None:
    job = user.submit(sizes="1-4", prefer=2)
    application = evolving(node)
    progress = app_pb2.Progress(safe_point_age_s=0.1)
    for size, seconds in ((1, 0.5), (2, 0.25)):
        progress.measured.add(size=size, seconds_per_iteration=seconds, iterations=100)
    application.say(app_pb2.AppReport(progress=progress))
    wait_until(lambda: user.job(job)["progress"])
    assert user.job(job)["progress"]["seconds_per_iteration"] == {"1": 0.5, "2": 0.25}
    line = "an iteration takes 0.5 s on 1, 0.25 s on 2 processors, as it has measured"
    assert line in user.do("why", id=job)["text"]
    application.close()


def test_a_speed_that_is_nonsense_closes_the_session(node: Controller, user: User) -> None:
    user.submit(sizes="1-4", prefer=2)
    application = evolving(node)
    progress = app_pb2.Progress(safe_point_age_s=0.1)
    progress.measured.add(size=1, seconds_per_iteration=0.0)
    application.say(app_pb2.AppReport(progress=progress))
    assert application.ended.wait(30)
    application.close()
