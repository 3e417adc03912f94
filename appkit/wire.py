"""Plain values to and from the wire. Loads grpc's messages: only session.py imports this, late."""

from pliant.appkit.messages import (
    Begun,
    Decision,
    Hello,
    Outcome,
    Progress,
    Report,
    Said,
    Withdrawn,
)
from pliant.protos import app_pb2 as pb
from pliant.protos.codec import template_to_proto


def hello_to_wire(hello: Hello) -> pb.AppReport:
    """First message of a stream."""
    return pb.AppReport(
        hello=pb.Hello(
            job=hello.job,
            run=hello.run,
            epoch=hello.epoch,
            token=hello.token,
            role=pb.ROLE_STANDBY if hello.standby else pb.ROLE_COORDINATOR,
            processors=hello.processors,
            sizes=hello.sizes,
            preferred=hello.preferred,
            rendezvous=hello.rendezvous,
            pending_resize=hello.pending_resize,
            begun=hello.begun,
        )
    )


def report_to_wire(report: Report) -> pb.AppReport:
    """What the coordinator reports."""
    match report:
        case Hello():
            return hello_to_wire(report)
        case Said():
            return pb.AppReport(answer=template_to_proto(report.template))
        case Begun():
            return pb.AppReport(begun=pb.Begun(resize=report.resize))
        case Withdrawn():
            return pb.AppReport(withdrawn=pb.Withdrawn(resize=report.resize))
        case Outcome():
            return pb.AppReport(
                outcome=pb.Outcome(
                    resize=report.resize,
                    committed=report.committed,
                    epoch=report.epoch,
                    processors=report.processors,
                    stage=report.stage,
                    reason=report.reason,
                    seconds=report.seconds,
                    bytes_moved=report.bytes_moved,
                )
            )


def progress_to_wire(progress: Progress) -> pb.AppReport:
    """How far the application is."""
    return pb.AppReport(
        progress=pb.Progress(
            safe_point_age_s=progress.safe_point_age_s,
            safe_points=progress.safe_points,
            iteration=progress.iteration,
            iterations=progress.iterations,
        )
    )


def decision_from_wire(go: pb.Go) -> Decision:
    """A GO."""
    return Decision(
        resize=go.resize,
        epoch=go.epoch,
        leaving=tuple(go.leaving_ranks),
        joining=tuple(go.joining_processors),
        secret=go.secret,
    )
