"""Every failpoint with every fault in everything that comes by; and what may come of it.

A growth is from two ranks to four, whose joining ranks are on two nodes. A shrink is from three to
two: rank 0 leaves, so that the role of the coordinator moves. A run is that of a rigid job of three
processes on two nodes, from its submission to its end, by itself or (``cancel``) by its user.
"""

from __future__ import annotations

from dataclasses import dataclass

from pliant.faults.failpoints_variable import RESTRICTED
from pliant.faults.registry import POINTS, Point

#: Seconds that a delayed step takes.
DELAY_S = 1.0
#: Seconds for which a disk is full: the first tries to write again come too early.
FULL_S = 1.2
ACTIONS = {
    "kill": "kill",
    "hang": "hang",
    "delay": f"delay:{DELAY_S:g}",
    "drop": "drop",
    "double": "double",
    "full-disk": f"full-disk:{FULL_S:g}",
}

#: Ranks that come by the points that several kinds of rank pass.
_WHO = {
    "grow": {"old": "@role=start@rank=1", "joining-rank": "@role=join@rank=0"},
    "shrink": {"stayer": "@rank=1", "leaver": "@rank=0"},
}
_SHARED = (
    "appkit.census",
    "appkit.move.prepared",
    "appkit.move.array",
    "appkit.move.moved",
    "appkit.commit",
)
_OLD_ONLY = (
    "appkit.ahead.write",
    "appkit.ahead.read",
    "appkit.grow.accept",
    "appkit.grow.joined",
    "appkit.resize.decided",
)
_OUTSIDE = (
    "appkit.offer.heard",
    "appkit.offer.answered",
    "appkit.commit",
    "appkit.leave",
    "appkit.outcome.sent",
)
_BEFORE_JOIN = tuple(
    f"appkit.newcomer.{step}" for step in ("start", "ready", "go", "hello", "arrived", "fetch")
)


#: Each process, each kind of fault, and each way in which a resize can end. Other tests kill a
#: server after GO (`e2e/faults/test_restart.py`), ranks after GO (`e2e/faults/test_faults.py`),
#: joining ranks that start (`test_joining_ranks.py`) and controllers that hear of exits
#: (`test_sweep.py`), lose the message GO (`reliability/nodes/test_network.py`), and let ranks hang
#: that move data ahead (`appkit/data/test_constant_arrays.py`).
CI = {
    "grow-server.prepare.after_commit-kill",
    "grow-server.outcome.before_commit-kill",
    "shrink-server.release.before_commit-kill",
    "grow-controller.start.spooled-kill",
    "grow-controller.control.in-kill",
    "grow-launcher.start.in-kill",
    "grow-shim.started-kill",
    "shrink-shim.exits.before_save-kill",
    "grow-appkit.offer.heard-hang",
    "shrink-appkit.standby.order-delay",
    "grow-appkit.newcomer.hello-hang",
    "grow-appkit.newcomer.fetch-kill",
    "shrink-appkit.census-leaver-kill",
    "grow-appkit.newcomer.joined-kill",
    "shrink-appkit.move.array-leaver-kill",
    "grow-appkit.outcome.sent-kill",
    "grow-server.answer.in-drop",
    "grow-server.go.before_commit-full-disk",
    "shrink-server.outcome.in-double",
    "grow-appkit.ahead.write-old-full-disk",
}

#: Of runs, besides the death of each place.
CI_RUNS = {
    "run-server.submit.before_commit-full-disk",
    "run-server.end.before_commit-full-disk",
    "run-controller.start.in-full-disk",
    "run-controller.start.in-double",
    "run-server.exits.in-drop",
    "run-shim.exits.before_save-full-disk",
    "cancel-controller.kill.in-drop",
}
#: Messages without which the server cannot know what the application has decided.
_DECISIVE = ("server.outcome.in",)


@dataclass(frozen=True, slots=True)
class Case:
    """One fault."""

    point: str
    action: str
    kind: str
    #: Which rank, in words; empty: whoever comes first.
    who: str = ""

    @property
    def name(self) -> str:
        """As tests and the table call it."""
        return "-".join(part for part in (self.kind, self.point, self.who, self.action) if part)

    @property
    def process(self) -> str:
        """Whose fault it is."""
        return self.point.partition(".")[0]

    def orders(self, latch: str) -> str:
        """What ``PLIANT_FAILPOINTS`` must say."""
        who = _WHO.get(self.kind, {}).get(self.who, "")
        if self.point == "appkit.move.array":  # the second of four
            return f"{self.point}{who}={ACTIONS[self.action]},after=1,once={latch}"
        return f"{self.point}{who}={ACTIONS[self.action]},once={latch}"

    @property
    def ends(self) -> bool:
        """Whether the process does not go on by itself."""
        return self.action in ("kill", "hang")

    @property
    def deaf(self) -> bool:
        """Whether nobody listens to the server in this application any more."""
        return self.action == "hang" and self.point.startswith("appkit.offer.")

    @property
    def stuck(self) -> bool:
        """Whether a rank hangs outside of the resize: the program stands still like any other.

        Each rank takes over its new parts by itself, and the resize is decided by then. Or none has
        begun: what is withdrawn then is over, but not that a rank hangs.
        """
        points = ("appkit.resize.decided", "appkit.commit", "appkit.outcome.sent")
        return self.action == "hang" and self.point in points

    @property
    def in_transaction(self) -> bool:
        """Whether the transaction is sure to be open, agreed on and not decided."""
        return self.point not in _OUTSIDE and not self.point.startswith("shim.exits.")

    @property
    def may_fail(self) -> bool:
        """Whether the job may be FAILED afterwards: a rank that it needs was lost, or is silent."""
        if not self.ends:
            return self.action == "drop" and self.point in _DECISIVE
        if self.process == "shim":  # at a shrink, its ranks are those of the job
            return self.kind == "shrink"
        if self.process != "appkit" or self.point in _BEFORE_JOIN:
            return False
        return not self.deaf


def all_cases() -> list[Case]:
    """Every case of a resize."""
    return [
        Case(point.name, action, kind, who)
        for point in POINTS
        for kind in point.when
        if kind in _WHO
        for who in _who(point, kind)
        for action in _actions(point)
    ]


def run_cases() -> list[Case]:
    """Every case of a run."""
    return [
        Case(point.name, action, kind)
        for point in POINTS
        for kind in point.when
        if kind not in _WHO
        for action in _actions(point)
    ]


def ci_cases() -> list[Case]:
    """Those of a resize that continuous integration runs."""
    return [case for case in all_cases() if case.name in CI]


def ci_run_cases() -> list[Case]:
    """Those of a run that continuous integration runs: every place dies once."""
    every = run_cases()
    deaths = [case for case in every if case.action == "kill" and case.kind == _once(case)]
    return deaths + [case for case in every if case.name in CI_RUNS]


def _actions(point: Point) -> list[str]:
    return [
        action for action in ACTIONS if action not in RESTRICTED or action in point.extra_actions
    ]


def _once(case: Case) -> str:
    """The one of several kinds of run that come by a place in which it is tried."""
    return next(
        kind for point in POINTS if point.name == case.point for kind in reversed(point.when)
    )


def _who(point: Point, kind: str) -> tuple[str, ...]:
    if point.name not in _SHARED:
        return ("old",) if kind == "grow" and point.name in _OLD_ONLY else ("",)
    if point.name == "appkit.commit" and kind == "shrink":
        return ("stayer",)
    return tuple(_WHO[kind])
