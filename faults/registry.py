"""The list of failpoints: the name of each, and what has just happened or is about to happen."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """One failpoint: a named place in the code of one kind of process."""

    name: str
    meaning: str
    #: The kinds of tests that pass the place: a resize (``grow``, ``shrink``), a job that is
    #: submitted and ends by itself (``run``), a job that its user cancels (``cancel``).
    when: tuple[str, ...] = ("grow", "shrink")
    #: Actions that are possible here in addition to those that are possible everywhere.
    extra_actions: tuple[str, ...] = ()

    @property
    def process(self) -> str:
        """Return which kind of process reaches this failpoint, the first part of its name.

        It is ``server``, ``controller``, ``launcher``, ``shim`` or ``appkit``.
        """
        return self.name.partition(".")[0]


_GROW, _SHRINK = ("grow",), ("shrink",)
_RUN, _CANCEL = ("run",), ("cancel",)
_STARTED, _ENDED = (*_GROW, *_RUN), (*_SHRINK, *_RUN, *_CANCEL)
_RESIZE = (*_GROW, *_SHRINK)

#: A message is about to be handled or sent. Local sockets lose none while both ends live.
_MESSAGE, _LOCAL = ("drop", "double"), ("double",)
#: This process is about to write to the disk.
_WRITE = ("full-disk",)

#: In the order in which a job and its resize pass them, one process after the other.
POINTS = (
    Point(
        "server.submit.before_commit",
        "a submission has its number, but is not stored",
        _RUN,
        _WRITE,
    ),
    Point("server.submit.after_commit", "a submission is stored, but the user has no answer", _RUN),
    Point(
        "server.start.before_commit",
        "a job has its processors, but this is not stored",
        _RUN,
        _WRITE,
    ),
    Point("server.start.after_commit", "the allocation is stored, but no node has been told", _RUN),
    Point("server.start.sent", "the orders to start are in the send queue", _RUN),
    Point(
        "server.offer.before_commit",
        "an offer has been decided, but is neither sent nor stored",
        _RESIZE,
        _WRITE,
    ),
    Point("server.offer.sent", "an offer is in the send queue, but not stored"),
    Point("server.offer.after_commit", "an offer is stored"),
    Point("server.answer.in", "an answer has arrived, but is not handled", _RESIZE, _MESSAGE),
    Point(
        "server.prepare.before_commit",
        "joining ranks (or a standby) have been decided, but are not stored",
        _RESIZE,
        _WRITE,
    ),
    Point(
        "server.prepare.after_commit", "the order for joining ranks is stored, but not sent", _GROW
    ),
    Point("server.fence.in", "a barrier of joining ranks has reached the server", _GROW, _MESSAGE),
    Point(
        "server.ready.in",
        "joining ranks (or the standby) have reported that they are ready",
        _STARTED,
        _MESSAGE,
    ),
    Point("server.go.before_commit", "GO has been decided, but is not stored", _RESIZE, _WRITE),
    Point("server.go.after_commit", "GO is stored, but not sent"),
    Point("server.go.sent", "GO is in the send queue"),
    Point(
        "server.begun.in",
        "the report that the application has begun has arrived, but is not handled",
        _RESIZE,
        _MESSAGE,
    ),
    Point(
        "server.outcome.in",
        "the decision of the application has arrived, but is not handled",
        _RESIZE,
        _MESSAGE,
    ),
    Point(
        "server.outcome.before_commit",
        "the job has its new size, but this is not stored",
        _RESIZE,
        _WRITE,
    ),
    Point("server.outcome.after_commit", "the new size is stored"),
    Point("server.exits.in", "a report of exits has arrived, but is not handled", _ENDED, _MESSAGE),
    Point(
        "server.release.before_commit",
        "processors are free again, but this is not stored",
        _ENDED,
        _WRITE,
    ),
    Point("server.release.after_commit", "processors are free again, and this is stored", _ENDED),
    Point(
        "server.end.before_commit",
        "a job has ended, but this is not stored",
        (*_RUN, *_CANCEL),
        _WRITE,
    ),
    Point(
        "server.end.after_commit",
        "the end of a job is stored, but no node has been told",
        (*_RUN, *_CANCEL),
    ),
    Point(
        "server.word.before_commit",
        "a user's request has been carried out, but this is not stored",
        _CANCEL,
        _WRITE,
    ),
    Point(
        "server.word.after_commit",
        "a user's request is stored, but the user has no answer",
        _CANCEL,
    ),
    Point(
        "server.kill.before_commit",
        "processes must be ended, but this is not stored",
        _CANCEL,
        _WRITE,
    ),
    Point(
        "server.kill.after_commit", "the order to end processes is stored, but not sent", _CANCEL
    ),
    Point("server.kill.sent", "the orders to end processes are in the send queue", _CANCEL),
    Point(
        "controller.start.in",
        "the order to start a world has arrived",
        _STARTED,
        (*_MESSAGE, *_WRITE),
    ),
    Point(
        "controller.start.spooled",
        "the order is in the spool, but the launcher does not know it",
        _STARTED,
    ),
    Point("controller.start.told", "the launcher has got the order", _STARTED),
    Point(
        "controller.fence.in",
        "a barrier of joining ranks on several nodes is about to be passed on",
        _GROW,
        _LOCAL,
    ),
    Point(
        "controller.fence_done.in",
        "that barrier is complete, but no shim knows it",
        _GROW,
        _MESSAGE,
    ),
    Point(
        "controller.ready.in", "a world is ready, but the server does not know it", _GROW, _LOCAL
    ),
    Point(
        "controller.control.in",
        "a message for joining ranks (GO) or for the next coordinator is about to be passed on",
        _RESIZE,
        _MESSAGE,
    ),
    Point("controller.kill.in", "the order to end processes has arrived", _CANCEL, _MESSAGE),
    Point(
        "controller.exits.in", "ranks have ended, but the server does not know it", _ENDED, _LOCAL
    ),
    Point("controller.ack.in", "the server has confirmed that exits are stored", _ENDED, _MESSAGE),
    Point("launcher.start.in", "the launcher has an order, but no shim has it", _STARTED, _LOCAL),
    Point("shim.claimed", "a shim has a world, but has started no rank", _STARTED, _WRITE),
    Point("shim.started", "the ranks have started, but the controller does not know it", _STARTED),
    Point("shim.barrier", "the ranks are in the barrier of MPI's initialisation", _GROW),
    Point("shim.ready", "the joining ranks are ready, but the controller does not know it", _GROW),
    Point(
        "shim.control",
        "a message for joining ranks (GO) or for the next coordinator is about to be passed on",
        _RESIZE,
        _LOCAL,
    ),
    Point("shim.kill", "the shim is about to ask its ranks to end", _CANCEL, _LOCAL),
    Point(
        "shim.exits.before_save", "a rank has ended, but this is not in the spool", _ENDED, _WRITE
    ),
    Point(
        "shim.exits.saved", "the exit is in the spool, but the controller does not know it", _ENDED
    ),
    Point(
        "appkit.offer.heard",
        "the coordinator has an offer, but has not considered it",
        _RESIZE,
        _MESSAGE,
    ),
    Point("appkit.offer.answered", "the answer is ready, but not sent", _RESIZE, _MESSAGE),
    Point(
        "appkit.standby.order", "the next coordinator is told to open its session", _SHRINK, _LOCAL
    ),
    Point(
        "appkit.go.heard",
        "the coordinator has received GO, but no other rank knows it",
        _RESIZE,
        _MESSAGE,
    ),
    Point(
        "appkit.ahead.write",
        "a rank is about to write its constant data, in a background thread",
        _RESIZE,
        _WRITE,
    ),
    Point(
        "appkit.ahead.read", "a rank is about to read its new constant data, in a background thread"
    ),
    Point("appkit.newcomer.fetch", "a joining rank is about to read its constant data", _GROW),
    Point("appkit.resize.decided", "every rank knows of the resize, but none has begun"),
    Point("appkit.resize.begun", "the coordinator has begun, but the others do not know it"),
    Point("appkit.newcomer.start", "a joining rank has completed MPI's initialisation", _GROW),
    Point("appkit.newcomer.ready", "a joining rank is about to connect to its shim", _GROW, _LOCAL),
    Point(
        "appkit.newcomer.go",
        "a joining rank has GO, but is not connected to the coordinator",
        _GROW,
    ),
    Point(
        "appkit.newcomer.hello",
        "a joining rank is connected, but has not identified itself",
        _GROW,
        _MESSAGE,
    ),
    Point(
        "appkit.newcomer.arrived", "a joining rank waits at the loop in which the others are", _GROW
    ),
    Point(
        "appkit.newcomer.connect", "a joining rank knows the MPI port, but has not connected", _GROW
    ),
    Point(
        "appkit.newcomer.joined",
        "a joining rank is in the merged communicator, without data",
        _GROW,
    ),
    Point("appkit.grow.accept", "a remaining rank is about to accept joining ranks", _GROW),
    Point("appkit.grow.joined", "a remaining rank has the merged communicator", _GROW),
    Point("appkit.census", "a rank is about to send the facts from which plans are made"),
    Point("appkit.move.prepared", "a rank has allocated its new parts, and all ranks know it"),
    Point("appkit.move.array", "the next array is about to move (once per array)"),
    Point("appkit.move.moved", "a rank has moved all data, but has not reported it"),
    Point(
        "appkit.commit", "all ranks have moved all data, and a rank is about to use the new parts"
    ),
    Point("appkit.shrink.split", "a rank is about to be split from the others", _SHRINK),
    Point("appkit.leave", "a leaving rank is about to exit", _SHRINK),
    Point("appkit.outcome", "a rank is about to report the outcome"),
    Point("appkit.outcome.sent", "the outcome is in the send queue"),
)
