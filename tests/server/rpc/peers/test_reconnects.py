"""Coordinators that come back say what a server that died may not have heard."""

from __future__ import annotations

import json
import signal

import pytest

from pliant.protos import app_pb2
from serverkit import Application, Server
from testkit import wait_until

pytestmark = pytest.mark.cluster


def test_a_beginning_that_a_killed_server_never_heard_of_is_told_again(server: Server) -> None:
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        job = user.submit(sizes="1-4")
        start = node.expect("start_world")
        application = Application(start, sizes="1-4")
        application.expect("welcome")
        wait_until(lambda: user.job(job)["state"] == "RUNNING")
        user.do("resize", id=job, size=2)
        offer = application.find("offer")
        offer.verb = app_pb2.VERB_ACCEPT
        application.say(app_pb2.AppReport(answer=offer))
        go = application.find("go")
        server.stop(signal.SIGKILL)
    for peer in (application, node):
        peer.close()
    server.start()
    again = Application(start, sizes="1-4", pending_resize=go.resize, begun=True)
    again.expect("welcome")
    with server.user() as user:
        wait_until(lambda: "resize.begun" in user.kinds(job), what="the beginning is known")
        report = app_pb2.Outcome(resize=go.resize, committed=True, epoch=go.epoch)
        report.processors.extend(range(2))
        again.say(app_pb2.AppReport(outcome=report))
        wait_until(lambda: user.job(job)["size"] == 2)
    again.close()


def test_a_late_standby_of_another_resize_changes_nothing(server: Server) -> None:
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        job = user.submit(sizes="1-4")
        start = node.expect("start_world")
        application = Application(start, sizes="1-4")
        application.expect("welcome")
        wait_until(lambda: user.job(job)["state"] == "RUNNING")
        user.do("resize", id=job, size=3, release=["n1/0"])
        offer = application.find("offer")
        offer.verb = app_pb2.VERB_ACCEPT
        application.say(app_pb2.AppReport(answer=offer))
        order = json.loads(node.find("control").message)
        assert order == {"op": "standby", "resize": offer.negotiation}
        resizes = (offer.negotiation + 1, offer.negotiation)
        standbys = []
        for resize in resizes:
            assert "resize.go" not in user.kinds(job)
            standbys.append(Application(start, role=app_pb2.ROLE_STANDBY, pending_resize=resize))
            standbys[-1].expect("welcome")
        assert application.find("go").resize == offer.negotiation
        for peer in (*standbys, application, node):
            peer.close()
