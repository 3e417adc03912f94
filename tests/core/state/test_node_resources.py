"""Memory, devices and properties of nodes in the core, under the invariants of the rig."""

from __future__ import annotations

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.job_explanation import explain
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.views_and_plans import Offer, Plan, Start, View
from pliant.core.model.wait_reasons import WaitCode
from pliant.core.state.node_resources import capacity, impossible, reasons
from pliant.core.state.view_cache import node_view
from pliant.core.state.views import view
from pliant.core.values.ids import FIRST_START, JobId, NodeName
from pliant.core.values.node_needs import GPU, MEMORY, NodeNeeds
from pliant.core.values.node_property_constraint import Constraint
from pliant.core.values.processors import block
from pliant.strategies import Strategy

ONE_GPU = NodeNeeds(((GPU, 1),))
MEMORY_5 = NodeNeeds(((MEMORY, 5),))


def node(
    name: str, slots: int = 4, memory: int = 0, gpus: int = 0, *properties: str
) -> events.NodeRegistered:
    gres = (("gpu", gpus),) if gpus else ()
    return events.NodeRegistered(
        NodeName(name), slots, memory_bytes=memory, gres=gres, properties=properties
    )


class Fixed(Strategy):
    """Returns the plan that the test has set, once."""

    def __init__(self) -> None:
        self.next = Plan()

    def allocate_processors(self, view: View) -> Plan:
        plan, self.next = self.next, Plan()
        return plan


def test_without_needs_all_processors_are_equal() -> None:
    rig = Rig(strategy="fcfs")
    rig.do(node("n1", memory=10, gpus=0))
    rig.submit(1, "2")
    assert view(rig.core.state).amounts_left is None
    rig.submit(2, "1", needs=MEMORY_5)
    assert view(rig.core.state).amounts_left == {NodeName("n1"): {MEMORY: 5}}


def test_a_view_has_room_while_a_usable_node_has_devices() -> None:
    """Strategies keep jobs without needs away from such nodes (``FreeCapacity.plain_first``)."""
    rig = Rig(strategy="fcfs")
    rig.do(node("n1", memory=10), node("n2", gpus=2))
    drained, removed = events.NodeDrained(NodeName("n2")), events.NodeRemoved(NodeName("n2"))
    for gone in (drained, events.NodeSuspected(NodeName("n2")), removed, node("n2", gpus=0)):
        rig.do(gone)
        assert view(rig.core.state).amounts_left is None
        rig.do(events.NodeResumed(NodeName("n2")), node("n2", gpus=2))
        assert view(rig.core.state).amounts_left == {}


def test_memory_is_free_when_the_processes_have_exited() -> None:
    rig = Rig(strategy="fcfs")
    rig.do(node("n1", memory=12))
    for number in (1, 2, 3):
        rig.submit(number, "1", needs=MEMORY_5)
    assert [rig.state(number) for number in (1, 2, 3)] == [
        JobState.STARTING,
        JobState.STARTING,
        JobState.PENDING,
    ]
    assert "5 bytes memory per process" in " ".join(explain(rig.core, JobId(3), rig.now))
    rig.up(1)
    rig.exit(1)
    rig.wait(1.0)
    assert rig.state(3) is JobState.STARTING


def test_devices_are_numbered_and_survive_a_restart() -> None:
    rig = Rig(strategy="fcfs")
    rig.do(node("n1", gpus=3), node("n2", gpus=2))
    rig.submit(1, "2", needs=ONE_GPU)
    rig.submit(2, "2", needs=ONE_GPU)
    first, second = rig.take(commands.Launch)
    assert first.shares == {NodeName("n1"): commands.NodeShare(0, {GPU: (0, 1)})}
    assert second.shares[NodeName("n1")].devices == {GPU: (2,)}
    assert second.shares[NodeName("n2")].devices == {GPU: (0,)}
    devices = rig.job(2).devices
    rig.restart()
    assert rig.job(2).devices == devices
    rig.core.check_invariants()


def test_growth_brings_memory_and_offers_name_it() -> None:
    rig = Rig(strategy="equipartition")
    rig.do(node("n1", memory=12), node("n2", memory=7))
    rig.run(1, "1-8", needs=MEMORY_5)
    (launch,) = rig.take(commands.Launch)
    assert launch.shares[NodeName("n1")].memory_bytes == 10
    # It started on all that fits: 2 processes on n1, 1 on n2, which has 4 slots, too.
    assert rig.job(1).size == 3
    rig.do(node("n3", memory=5))
    offer = rig.offer(1)
    assert [(item.kind, item.quantity) for item in offer.items] == [
        ("processors", 1),
        ("resource:memory", 5),
    ]
    rig.answer(1, Verb.ACCEPT, offer)
    assert rig.resize(1).after == (0, 1, 4, 8)
    (launch,) = rig.take(commands.Launch)
    assert launch.shares == {NodeName("n3"): commands.NodeShare(5, {})}


def test_the_commit_refuses_what_does_not_fit() -> None:
    """Two jobs of one plan may need the same memory, and a strategy may be wrong."""
    strategy = Fixed()
    rig = Rig(strategy=strategy)
    rig.do(node("n1", memory=12), node("n2"))
    rig.submit(1, "1-2", needs=MEMORY_5)
    rig.submit(2, "1-2", needs=MEMORY_5)
    strategy.next = Plan(starts=(Start(JobId(1), block(0, 2)), Start(JobId(2), block(2, 1))))
    rig.submit(3, "1", needs=NodeNeeds((), None, "", "n2"))
    assert [rig.state(number) for number in (1, 2)] == [JobState.STARTING, JobState.PENDING]
    strategy.next = Plan(starts=(Start(JobId(3), block(4, 1)),))
    rig.submit(4, "1")
    assert rig.state(3) is JobState.PENDING
    refused = [note.text for note in rig.notes if note.kind == "plan.refused"]
    assert "node n1 has too little memory" in refused[0]
    assert "its nodes may not be n2" in refused[1]


def test_a_promise_counts_the_larger_need_of_donor_and_recipient() -> None:
    strategy = Fixed()
    rig = Rig(strategy=strategy)
    rig.do(node("n1", 3, memory=12))
    strategy.next = Plan(starts=(Start(JobId(1), block(0, 3)),))
    rig.run(1, "1-3", needs=NodeNeeds(((MEMORY, 3),)))
    rig.submit(2, "1", needs=MEMORY_5)
    strategy.next = Plan(
        shrinks=(Offer(JobId(1), block(0, 2)),), starts=(Start(JobId(2), block(2, 1)),)
    )
    rig.submit(3, "1")
    assert rig.job(2).reserved == block(2, 1)
    assert view(rig.core.state).amounts_left == {NodeName("n1"): {MEMORY: 1}}


def test_a_node_with_less_than_before_keeps_its_jobs() -> None:
    rig = Rig(strategy="fcfs")
    rig.do(node("n1", memory=12))
    rig.submit(1, "2", needs=MEMORY_5)
    rig.up(1)
    rig.do(
        events.NodeRegistered(
            NodeName("n1"),
            4,
            memory_bytes=6,
            worlds=(events.LiveWorld(JobId(1), 1, FIRST_START, block(0, 2), True),),
        )
    )
    rig.submit(2, "1", needs=NodeNeeds(((MEMORY, 1),)))
    assert (rig.state(1), rig.state(2)) == (JobState.RUNNING, JobState.PENDING)


def test_jobs_whose_nodes_are_gone_wait_with_a_reason() -> None:
    rig = Rig(strategy="fcfs")
    rig.do(node("n1", 4, 0, 0, "fast"), node("n2"))
    rig.do(events.NodeLost(NodeName("n1"), "a test"))
    rig.submit(1, "1", needs=NodeNeeds((), Constraint("fast")))
    rig.submit(2, "1")
    assert (rig.state(1), rig.state(2)) == (JobState.PENDING, JobState.STARTING)
    assert "constraint fast" in rig.job(1).why
    rig.do(node("n1", 4, 0, 0, "fast"))
    assert rig.state(1) is JobState.STARTING


def test_what_can_never_run() -> None:
    rig = Rig(strategy="fcfs")
    rig.do(node("n1", 4, 8, 2, "fast"), node("n2", 8, 16))
    nodes = [node_view(each) for each in rig.core.nodes.values()]
    assert impossible(nodes, ONE_GPU, 2) == ""
    assert "at most 2 processes fit" in impossible(nodes, ONE_GPU, 3)
    assert "largest node has 16 bytes memory" in impossible(nodes, NodeNeeds(((MEMORY, 17),)), 1)
    assert "the nodes have fast" in impossible(nodes, NodeNeeds((), Constraint("slow")), 1)
    assert "there are n1, n2" in impossible(nodes, NodeNeeds((), None, "x[1-2]"), 1)


def test_processors_of_a_suspected_node_are_not_expected_when_it_is_lost() -> None:
    rig = Rig(strategy="fcfs")
    rig.do(node("n1", memory=10), node("n2", memory=20))
    rig.submit(1, "4", needs=MEMORY_5)
    rig.submit(2, "4", needs=MEMORY_5)
    waiting = rig.job(2)
    assert capacity(rig.core.state, waiting) == (6, 6)
    rig.do(events.NodeSuspected(NodeName("n1")))
    assert capacity(rig.core.state, waiting) == (4, 6)
    rig.do(events.NodeLost(NodeName("n1"), "no beat for 60 s"))
    assert capacity(rig.core.state, waiting) == (4, 4)


def test_a_job_waits_for_nodes_when_the_suspected_ones_are_lost() -> None:
    rig = Rig(strategy="fcfs")
    rig.do(node("n1", memory=10), node("n2", memory=20))
    rig.do(events.NodeSuspected(NodeName("n1")))
    rig.submit(1, "6", needs=MEMORY_5)
    assert reasons(rig.core.state) == {}
    rig.do(events.NodeLost(NodeName("n1"), "no beat for 60 s"))
    (reason,) = reasons(rig.core.state).values()
    assert reason.code is WaitCode.NODES
