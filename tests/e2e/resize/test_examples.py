"""The worked examples of Ghafoor (3.1.1.2, 3.1.1.4, 4.3.2) with real programs on real clusters.

Examples 2 and 3 have fewer processors here: each is a process. The published numbers are in
`tests/core/handlers/test_donor_negotiation.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.afterwards import idle
from clusterkit.bargaining import Bargaining, finish
from clusterkit.cluster import Cluster
from clusterkit.shared import running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(180)]

#: What comes back in parts is offered as a whole: the examples are about these numbers.
SETTINGS = "settle_s: 10.0\n"
PRICES = SETTINGS + "negotiation: {rounds: 3, price: 3, floor: 1}\n"


@pytest.fixture(name="minimum", scope="module")
def _minimum() -> Iterator[Cluster]:
    with running_cluster("easy-min", SETTINGS, nodes=1, slots=11) as cluster:
        yield cluster


@pytest.fixture
def eleven(minimum: Cluster) -> Iterator[Cluster]:
    """Return eleven processors, on which jobs shrink for those that wait."""
    yield minimum
    idle(minimum)


@pytest.fixture(name="priced", scope="module")
def _priced() -> Iterator[Cluster]:
    with running_cluster("equipartition", PRICES, nodes=2, slots=4) as cluster:
        yield cluster


@pytest.fixture
def market(priced: Cluster) -> Iterator[Cluster]:
    """Return eight processors; four more cost 12 at first, 8 then, and 4 at the least."""
    yield priced
    idle(priced)


def submit(cluster: Cluster, size: int) -> int:
    """Submit a rigid job."""
    argv = ("/bin/sleep", "600")
    return cluster.client.submit(*argv, sizes=str(size), type="mpi", stdout="/dev/null")


def occupy(cluster: Cluster, size: int) -> int:
    """Have a rigid job take processors away."""
    number = submit(cluster, size)
    cluster.wait_for(number, lambda job: job.state == "RUNNING", "processors to be taken")
    return number


def test_example_1_asked_for_five_it_counters_four_or_six_and_six_is_taken(
    eleven: Cluster, tmp_path: Path
) -> None:
    donor = Bargaining(eleven, tmp_path / "donor", "1-8", 8, more="1-8:pow2", fewer=[2, 4]).up()
    (donor.folder / "hold").touch()
    rigid = submit(eleven, 8)
    asked = donor.told("offered 3 processors instead of 8").data["resize"]
    assert f"resize {asked}: 8 -> 3 processors" in donor.why()
    assert "offered; the application has not answered" in donor.why()
    assert f"8 processors promised to it, from job {donor.id}" in eleven.client.why(rigid).text
    (donor.folder / "hold").unlink()
    eleven.wait_for(rigid, lambda job: job.state == "RUNNING", "the rigid job to run")
    assert eleven.client.job(rigid).processors == 8
    donor.has(2)
    assert donor.talk(asked) == [
        "offered 3 processors instead of 8 (easy-min, for job 2)",
        "the application answered COUNTER ({2,4})",
        "its counter-offer of 2 was taken",
    ]
    donor.goes_on()
    finish(donor)
    assert eleven.client.job(rigid).state == "RUNNING"


def test_what_can_be_given_later_only_is_waited_for(eleven: Cluster, tmp_path: Path) -> None:
    later = {"not_before_s": 2.0, "reason": "a phase ends"}
    donor = Bargaining(eleven, tmp_path / "donor", "1-8", 8, more="1-8:pow2", fewer=later).up()
    rigid = submit(eleven, 8)
    asked = donor.told("offered 3 processors instead of 8")
    donor.told("the application answered ACCEPT (at a later time): a phase ends")
    eleven.wait_for(rigid, lambda job: job.state == "RUNNING", "the rigid job to run")
    (go,) = [
        event
        for event in eleven.history(donor.id, "resize.go")
        if event.data["resize"] == asked.data["resize"]
    ]
    assert go.time >= asked.time + 2.0
    released = eleven.history(donor.id, "processors.released")
    (started,) = eleven.history(rigid, "job.started")
    assert started.time == next(e.time for e in reversed(released) if e.time <= started.time)
    donor.goes_on()
    finish(donor)


def test_example_2_only_those_are_taken_whose_processors_are_needed(tmp_path: Path) -> None:
    with running_cluster("fcfs", SETTINGS, nodes=2, slots=6) as cluster:
        taker = Bargaining(cluster, tmp_path / "taker", "2-16", 2, more=[6], evolving=True)
        one = Bargaining(cluster, tmp_path / "one", "1-2", 2, fewer=True)
        two = Bargaining(cluster, tmp_path / "two", "1-3", 3, fewer=True)
        three = Bargaining(cluster, tmp_path / "three", "1-4", 4, fewer=True)
        jobs = [job.up() for job in (taker, one, two, three)]
        before = cluster.ranks(three.id)
        taker.say("request 3-16")
        taker.has(6)
        taker.prints("request granted in part with 6")
        one.has(1)
        two.has(1)
        three.has(4)
        assert cluster.ranks(three.id) == before
        for job in jobs:
            job.goes_on()
        _tells_of_example_2(cluster, *jobs)
        finish(*jobs)


def _tells_of_example_2(
    cluster: Cluster, taker: Bargaining, one: Bargaining, two: Bargaining, three: Bargaining
) -> None:
    assert taker.talk(taker.told("offered").data["resize"]) == [
        "offered 9 processors instead of 2 (request 1 of the application)",
        "the application answered COUNTER (6)",
        "its counter-offer of 6 was taken",
    ]
    (granted,) = cluster.history(taker.id, "request.granted")
    assert (granted.data["outcome"], granted.data["size"]) == ("granted in part", 6)
    taken = cluster.history(taker.id, "offer.countered")[0].time
    for donor, size in ((one, 2), (two, 3)):
        assert donor.kinds()[:3] == ["offer.sent", "offer.answered", "resize.go"]
        why = f"fcfs, for job {taker.id}"
        assert donor.told("offered").text == f"offered 1 processor instead of {size} ({why})"
        assert cluster.history(donor.id, "resize.go")[0].time >= taken, "it gave too early"
    assert three.kinds() == ["offer.sent", "offer.answered", "offer.withdrawn"]
    assert three.talk(three.told("offered").data["resize"]) == [
        f"offered 1 processor instead of 4 (fcfs, for job {taker.id})",
        "the application answered ACCEPT",
        "its processors are not needed after all",
    ]
    assert "its processors are not needed after all" in three.why()


def test_example_3_five_are_offered_and_two_are_taken(tmp_path: Path) -> None:
    with running_cluster("equipartition", SETTINGS, nodes=1, slots=7) as cluster:
        others = occupy(cluster, 5)
        job = Bargaining(cluster, tmp_path / "job", "2-8", 2, more="2-8:pow2").up()
        cluster.client.cancel(others)
        job.has(4)
        assert job.talk(cluster.history(job.id, "offer.sent")[0].data["resize"]) == [
            "offered 7 processors instead of 2 (equipartition)",
            "the application answered COUNTER ({4,8})",
            "its counter-offer of 4 was taken",
        ]
        job.goes_on()
        finish(job)


ASKS = [
    "offered 8 processors instead of 4 for 12 (equipartition)",
    "offered 8 processors instead of 4 for 8 (equipartition)",
    "offered 8 processors instead of 4 for 4 (equipartition, a last word)",
]


def beside_four_others(market: Cluster, folder: Path, pays: float) -> Bargaining:
    """Return a job on four processors that is offered the other four at a price."""
    others = occupy(market, 4)
    job = Bargaining(market, folder, "4-8", 4, more={"price": pays}).up()
    market.client.cancel(others)
    return job


def test_example_4_a_price_is_taken_when_the_policy_would_ask_no_more(
    market: Cluster, tmp_path: Path
) -> None:
    job = beside_four_others(market, tmp_path / "job", pays=5)
    job.has(8)
    bid = "the application answered COUNTER (8, for 5)"
    taken = "its counter-offer of 8 for 5 was taken"
    asked = job.told("offered").data["resize"]
    assert job.talk(asked) == [ASKS[0], bid, ASKS[1], bid, taken]
    job.goes_on()
    finish(job)


def test_example_4_who_pays_less_than_the_floor_gets_nothing(
    market: Cluster, tmp_path: Path
) -> None:
    job = beside_four_others(market, tmp_path / "job", pays=3)
    bid = "the application answered COUNTER (8, for 3)"
    reason = "the program wants 8 processors at a price of 3"
    refused = job.told(f"the application answered REJECT: {reason}")
    assert job.talk(refused.data["resize"]) == [
        *(ASKS[0], bid, ASKS[1], bid, ASKS[2]),
        refused.text,
    ]
    assert f"refused: {reason}" in job.why()
    job.has(4)
    job.goes_on()
    finish(job)
