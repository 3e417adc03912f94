"""Case 35: instants that an application names mean the same on a server with another clock."""

from __future__ import annotations

import pytest

from pliant.protos import app_pb2
from pliant.server.rpc.clock_skew import to_server_time

NOW = 1_700_000_000.0


@pytest.mark.case(35)
@pytest.mark.parametrize("ahead", [0.0, 3600.0, -3600.0, -NOW + 1])
def test_what_is_named_keeps_its_distance(ahead: float) -> None:
    theirs = NOW + ahead
    item = app_pb2.Item(not_before_s=theirs + 5, valid_until_s=theirs + 9)
    wanted = app_pb2.RequestSizes(number=1, deadline_s=theirs + 30)
    said = app_pb2.AppReport(clock=theirs, answer=app_pb2.Template(items=[item]))
    asked = app_pb2.AppReport(clock=theirs, request=wanted)
    hello = app_pb2.AppReport(clock=theirs, hello=app_pb2.Hello(request=wanted))
    (found,) = to_server_time(said, NOW).answer.items
    assert (found.not_before_s, found.valid_until_s) == (NOW + 5, NOW + 9)
    assert to_server_time(asked, NOW).request.deadline_s == NOW + 30
    assert to_server_time(hello, NOW).hello.request.deadline_s == NOW + 30


def test_what_is_not_named_is_not_there_afterwards() -> None:
    reports = [
        app_pb2.AppReport(clock=5.0, answer=app_pb2.Template(items=[app_pb2.Item()])),
        app_pb2.AppReport(clock=5.0, request=app_pb2.RequestSizes(number=1)),
        app_pb2.AppReport(clock=5.0, hello=app_pb2.Hello(job=1)),
        app_pb2.AppReport(clock=5.0, progress=app_pb2.Progress(safe_points=3)),
    ]
    for report in reports:
        before = report.SerializeToString()
        assert to_server_time(report, NOW).SerializeToString() == before


def test_who_does_not_say_its_time_is_taken_at_its_word() -> None:
    report = app_pb2.AppReport(request=app_pb2.RequestSizes(number=1, deadline_s=7.0))
    assert to_server_time(report, NOW).request.deadline_s == 7.0
