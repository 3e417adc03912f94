"""Instants that applications name, in the server's time: clocks of nodes may be others."""

from __future__ import annotations

from pliant.protos import app_pb2


def to_server_time(report: app_pb2.AppReport, now: float) -> app_pb2.AppReport:
    """Shift what a report names, in place, by the difference between both clocks; the report.

    Args:
        report: says by its own clock when it was sent; if it does not, nothing is shifted.
        now: the server's time as it arrives, seconds since the epoch.
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
