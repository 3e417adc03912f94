"""Plain values to and from the wire. Loads grpc's messages: only session.py imports this, late."""

from pliant.appkit.messages import (
    Answer,
    Begun,
    Decision,
    Hello,
    Offer,
    Outcome,
    Progress,
    Report,
    Withdrawn,
)
from pliant.core.negotiation import Verb
from pliant.core.sizes import SizesError, parse_sizes
from pliant.protos import app_pb2 as pb


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
        )
    )


def report_to_wire(report: Report) -> pb.AppReport:
    """What the coordinator reports."""
    match report:
        case Hello():
            return hello_to_wire(report)
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


def offer_from_wire(template: pb.Template, current: int) -> Offer:
    """The offer in a template.

    Raises:
        ValueError: there is no item of processors, or its total cannot be read.
    """
    for item in template.items:
        if item.kind == "processors":
            return Offer(
                resize=template.negotiation,
                current=current,
                proposed=_total(item, current),
                epoch=template.epoch,
                round=template.round,
                final=template.verb == pb.VERB_FINAL,
                mandatory=item.mandatory,
                price=item.price,
                valid_until_s=item.valid_until_s,
                reason=template.reason,
            )
    raise ValueError("the offer has no item of processors")


def answer_to_wire(answer: Answer, template: pb.Template) -> pb.AppReport:
    """The reply to a template: the same items, with their status."""
    reply = pb.Template()
    reply.CopyFrom(template)
    reply.verb = pb.Verb.Value(f"VERB_{answer.verb.value}")
    reply.reason = answer.reason
    for item in reply.items:
        if answer.verb is Verb.COUNTER:
            item.sizes, item.status = str(answer.size), "pending"
        else:
            item.status = "accepted" if answer.verb is Verb.ACCEPT else "rejected"
    return pb.AppReport(answer=reply)


def decision_from_wire(go: pb.Go) -> Decision:
    """A GO."""
    return Decision(
        resize=go.resize,
        epoch=go.epoch,
        leaving=tuple(go.leaving_ranks),
        joining=tuple(go.joining_processors),
        secret=go.secret,
    )


def _total(item: pb.Item, current: int) -> int:
    """The proposed total: as text where it is one number, else from quantity and direction."""
    if item.sizes:
        try:
            sizes = parse_sizes(item.sizes)
        except SizesError as error:
            raise ValueError(str(error)) from error
        if sizes.fixed:
            return sizes.lo
    sign = 1 if item.direction == pb.DIRECTION_RECEIVE else -1
    return current + sign * item.quantity
