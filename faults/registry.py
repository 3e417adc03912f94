"""Every failpoint: its name, who runs it, and what has just happened or is about to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """One place in the code."""

    name: str
    meaning: str
    #: What comes by: the resizes ``grow`` and ``shrink``; ``run``: a job that is submitted, runs
    #: and ends; ``cancel``: one that is ended by its user.
    when: tuple[str, ...] = ("grow", "shrink")
    #: What can be ordered here besides what can be ordered everywhere.
    besides: tuple[str, ...] = ()

    @property
    def process(self) -> str:
        """Who runs it: ``server``, ``controller``, ``launcher``, ``shim``, ``appkit``."""
        return self.name.partition(".")[0]


_GROW, _SHRINK = ("grow",), ("shrink",)
_RUN, _CANCEL = ("run",), ("cancel",)
_STARTED, _ENDED = (*_GROW, *_RUN), (*_SHRINK, *_RUN, *_CANCEL)
_RESIZE = (*_GROW, *_SHRINK)

#: A message is about to be handled or sent. Within a machine none is lost while both ends live.
_MESSAGE, _LOCAL = ("drop", "double"), ("double",)
#: This process is about to write to the disk.
_WRITE = ("full-disk",)

#: In the order in which a job and its resize come by, one process after the other.
POINTS = (
    Point(
        "server.submit.before_commit", "a submission has its number and is not stored", _RUN, _WRITE
    ),
    Point("server.submit.after_commit", "it is stored, and the user has no answer", _RUN),
    Point(
        "server.start.before_commit", "a job has its processors, that is not stored", _RUN, _WRITE
    ),
    Point("server.start.after_commit", "that is stored, and no node was told", _RUN),
    Point("server.start.sent", "the orders to start are with the sender", _RUN),
    Point(
        "server.offer.before_commit",
        "an offer is decided on, not sent and not stored",
        _RESIZE,
        _WRITE,
    ),
    Point("server.offer.sent", "an offer is with the sender and not stored"),
    Point("server.offer.after_commit", "an offer is stored"),
    Point("server.answer.in", "an answer has arrived and nobody has seen it", _RESIZE, _MESSAGE),
    Point(
        "server.prepare.before_commit",
        "newcomers (or a standby) are decided on, not stored",
        _RESIZE,
        _WRITE,
    ),
    Point("server.prepare.after_commit", "the order for newcomers is stored and not sent", _GROW),
    Point("server.fence.in", "a barrier of newcomers has come to the server", _GROW, _MESSAGE),
    Point("server.ready.in", "newcomers (or the standby) have called", _STARTED, _MESSAGE),
    Point("server.go.before_commit", "GO is decided on and not stored", _RESIZE, _WRITE),
    Point("server.go.after_commit", "GO is stored and not sent"),
    Point("server.go.sent", "GO is with the sender"),
    Point("server.begun.in", "the application has begun and nobody has seen it", _RESIZE, _MESSAGE),
    Point(
        "server.outcome.in", "the application has decided and nobody has seen it", _RESIZE, _MESSAGE
    ),
    Point(
        "server.outcome.before_commit", "the new size is taken over and not stored", _RESIZE, _WRITE
    ),
    Point("server.outcome.after_commit", "the new size is stored"),
    Point("server.exits.in", "a node reports ends and nobody has seen it", _ENDED, _MESSAGE),
    Point("server.release.before_commit", "processors are free again, not stored", _ENDED, _WRITE),
    Point("server.release.after_commit", "processors are free again, stored", _ENDED),
    Point(
        "server.end.before_commit", "a job has ended, that is not stored", (*_RUN, *_CANCEL), _WRITE
    ),
    Point("server.end.after_commit", "its end is stored, no node was told", (*_RUN, *_CANCEL)),
    Point("server.word.before_commit", "a user's word is done, not stored", _CANCEL, _WRITE),
    Point("server.word.after_commit", "it is stored, the user has no answer", _CANCEL),
    Point("server.kill.before_commit", "processes are to be ended, not stored", _CANCEL, _WRITE),
    Point("server.kill.after_commit", "that is stored, and no node was told", _CANCEL),
    Point("server.kill.sent", "the orders to end them are with the sender", _CANCEL),
    Point(
        "controller.start.in",
        "the order to start a world has arrived",
        _STARTED,
        (*_MESSAGE, *_WRITE),
    ),
    Point("controller.start.spooled", "it is in the spool, the launcher does not know", _STARTED),
    Point("controller.start.told", "the launcher was told", _STARTED),
    Point(
        "controller.fence.in", "a barrier of newcomers on several nodes is passed on", _GROW, _LOCAL
    ),
    Point("controller.fence_done.in", "that barrier is over, no shim knows", _GROW, _MESSAGE),
    Point("controller.ready.in", "a world is ready, the server does not know", _GROW, _LOCAL),
    Point(
        "controller.control.in",
        "a word for newcomers (GO) or for the next coordinator",
        _RESIZE,
        _MESSAGE,
    ),
    Point("controller.kill.in", "the order to end processes has arrived", _CANCEL, _MESSAGE),
    Point("controller.exits.in", "ranks have ended, the server does not know", _ENDED, _LOCAL),
    Point("controller.ack.in", "the server has stored the ends of ranks", _ENDED, _MESSAGE),
    Point("launcher.start.in", "it was told a world and has given it to no shim", _STARTED, _LOCAL),
    Point("shim.claimed", "a shim has a world and has started no rank", _STARTED, _WRITE),
    Point("shim.started", "its ranks are started, the controller does not know", _STARTED),
    Point("shim.barrier", "its ranks are in the barrier of MPI's start", _GROW),
    Point("shim.ready", "its newcomers are ready, the controller does not know", _GROW),
    Point("shim.control", "a word for newcomers (GO) or for the next coordinator", _RESIZE, _LOCAL),
    Point("shim.kill", "the shim is about to ask its ranks to end", _CANCEL, _LOCAL),
    Point("shim.exits.before_save", "a rank has ended, that is not in the spool", _ENDED, _WRITE),
    Point("shim.exits.saved", "the end is in the spool, the controller does not know", _ENDED),
    Point(
        "appkit.offer.heard",
        "the coordinator has an offer and has not thought about it",
        _RESIZE,
        _MESSAGE,
    ),
    Point("appkit.offer.answered", "its answer is ready and not sent", _RESIZE, _MESSAGE),
    Point(
        "appkit.standby.order", "the next coordinator is told to open its session", _SHRINK, _LOCAL
    ),
    Point("appkit.go.heard", "GO is with the coordinator, and nobody knows", _RESIZE, _MESSAGE),
    Point(
        "appkit.ahead.write",
        "a rank is about to write its constant data, beside the program",
        _RESIZE,
        _WRITE,
    ),
    Point("appkit.ahead.read", "a rank is about to read its new constant data, beside the program"),
    Point("appkit.newcomer.fetch", "a newcomer is about to read its constant data", _GROW),
    Point("appkit.resize.decided", "every rank knows of the resize, none has begun"),
    Point("appkit.resize.begun", "the coordinator has begun, the others do not know"),
    Point("appkit.newcomer.start", "a newcomer has left MPI's initialisation", _GROW),
    Point("appkit.newcomer.ready", "it is about to call its shim", _GROW, _LOCAL),
    Point("appkit.newcomer.go", "it has GO and has not met the coordinator", _GROW),
    Point("appkit.newcomer.hello", "it is connected and has not said who it is", _GROW, _MESSAGE),
    Point("appkit.newcomer.arrived", "it waits at the loop of the others", _GROW),
    Point("appkit.newcomer.connect", "it knows the port and has not connected", _GROW),
    Point("appkit.newcomer.joined", "it is in the merged communicator, without data", _GROW),
    Point("appkit.grow.accept", "a rank of before is about to accept newcomers", _GROW),
    Point("appkit.grow.joined", "a rank of before has the merged communicator", _GROW),
    Point("appkit.census", "a rank is about to tell what it has, for the plans"),
    Point("appkit.move.prepared", "a rank has room for its new parts, and all know that"),
    Point("appkit.move.array", "the next array is about to move (once for each)"),
    Point("appkit.move.moved", "a rank has moved all, and has not said so"),
    Point("appkit.commit", "all have moved all: a rank is about to use the new parts"),
    Point("appkit.shrink.split", "a rank is about to be split from the others", _SHRINK),
    Point("appkit.leave", "a leaver is about to end", _SHRINK),
    Point("appkit.outcome", "a rank is about to report the outcome"),
    Point("appkit.outcome.sent", "the outcome is with the sender"),
)
