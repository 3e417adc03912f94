"""Convert times that applications send to the clock of the server, which may differ."""

from __future__ import annotations

from pliant.protos import app_pb2


def to_server_time(report: app_pb2.AppReport, now: float) -> app_pb2.AppReport:
    """Convert all times in a report to the server's clock, in place, and return the report.

    Args:
        report: the report. It is unchanged if it does not contain the time at which it was sent.
        now: the time of the server when the report arrived, in seconds since the epoch.
    """
    if not report.clock:
        return report
    ahead = report.clock - now
    body = report.WhichOneof("body")
    if body == "answer":
        for item in report.answer.items:
            item.not_before_s -= ahead if item.not_before_s else 0.0
            item.valid_until_s -= ahead if item.valid_until_s else 0.0
    elif body == "request":
        report.request.deadline_s -= ahead if report.request.deadline_s else 0.0
    elif body == "hello" and report.hello.request.deadline_s:
        report.hello.request.deadline_s -= ahead
    return report
