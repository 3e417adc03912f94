"""Convert plain values to and from protobuf.

Only `server_stream` imports this module, and late, because it loads grpc's messages.
"""

from pliant.appkit.coordinator.messages import (
    BegunReport,
    CheckpointReport,
    CoordinatorReport,
    Decision,
    Hello,
    NegotiationMessage,
    Progress,
    RequestRecord,
    RequestState,
    ResizeOutcome,
    Withdrawn,
)
from pliant.core.model.checkpoint import SaveStep
from pliant.protos import app_pb2 as pb
from pliant.protos.checkpoint_codec import save_status_to_proto, suspend_step_from_proto
from pliant.protos.codec import template_to_proto
from pliant.protos.sanitize_text import sanitize_text


def hello_to_wire(hello: Hello) -> pb.AppReport:
    """Return the first message of a stream as protobuf."""
    return pb.AppReport(
        hello=pb.Hello(
            job=hello.job,
            run=hello.run,
            epoch=hello.epoch,
            role=pb.ROLE_STANDBY if hello.standby else pb.ROLE_COORDINATOR,
            processors=hello.processors,
            sizes=hello.sizes,
            preferred=hello.preferred,
            rendezvous=hello.rendezvous,
            pending_resize=hello.pending_resize,
            begun=hello.begun,
            saving=_save_to_wire(hello.saving) if hello.saving else None,
            on_request=hello.on_request,
            request=_request_to_wire(hello.asked) if hello.asked is not None else None,
            cancelled=hello.asked is not None and hello.asked.state is RequestState.CANCELLED,
        )
    )


def _request_to_wire(asked: RequestRecord) -> pb.RequestSizes:
    return pb.RequestSizes(
        number=asked.number,
        sizes=str(asked.sizes),
        preferred=asked.sizes.preferred or 0,
        reason=sanitize_text(asked.reason),
        deadline_s=asked.deadline_s,
    )


def report_to_wire(report: CoordinatorReport) -> pb.AppReport:
    """Return a report as protobuf."""
    match report:
        case Hello():
            return hello_to_wire(report)
        case NegotiationMessage():
            return pb.AppReport(answer=template_to_proto(report.template))
        case CheckpointReport():
            return pb.AppReport(save=_save_to_wire(report))
        case RequestRecord(state=RequestState.CANCELLED):
            return pb.AppReport(cancel=pb.CancelRequest(number=report.number))
        case RequestRecord():
            return pb.AppReport(request=_request_to_wire(report))
        case BegunReport():
            return pb.AppReport(begun=pb.Begun(resize=report.resize))
        case Withdrawn():
            return pb.AppReport(withdrawn=pb.Withdrawn(resize=report.resize))
        case ResizeOutcome():
            return pb.AppReport(
                outcome=pb.Outcome(
                    resize=report.resize,
                    committed=report.committed,
                    epoch=report.epoch,
                    processors=report.processors,
                    stage=report.stage,
                    reason=sanitize_text(report.reason),
                    seconds=report.seconds,
                    bytes_moved=report.bytes_moved,
                )
            )


def _save_to_wire(report: CheckpointReport) -> pb.SaveReport:
    return pb.SaveReport(
        number=report.number,
        word=save_status_to_proto(report.progress),
        reason=sanitize_text(report.reason),
        iteration=report.iteration,
        bytes=report.bytes,
        seconds=report.seconds,
    )


def suspension_from_wire(order: pb.Suspend) -> tuple[int, SaveStep]:
    """Return the number of a suspension, and what the server orders: save, leave or withdraw."""
    return order.number, suspend_step_from_proto(order.step)


def progress_to_wire(progress: Progress) -> pb.AppReport:
    """Return a report of progress as protobuf."""
    return pb.AppReport(
        progress=pb.Progress(
            safe_point_age_s=progress.safe_point_age_s,
            safe_points=progress.safe_points,
            iteration=progress.iteration,
            iterations=progress.iterations,
            measured=[
                pb.Measured(
                    size=each.size,
                    seconds_per_iteration=each.seconds_per_iteration,
                    iterations=each.iterations,
                )
                for each in progress.measured
            ],
        )
    )


def decision_from_wire(go: pb.Go) -> Decision:
    """Return the resize that the server orders by ``go``, a GO message."""
    return Decision(
        resize=go.resize,
        epoch=go.epoch,
        leaving=tuple(go.leaving_ranks),
        joining=tuple(go.joining_processors),
        secret=go.secret,
    )
