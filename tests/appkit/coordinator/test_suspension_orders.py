"""The coordinator's desk for suspensions: what is answered to whom, and what is said again."""

from __future__ import annotations

import threading

import pytest

from pliant.appkit.coordinator.messages import CheckpointOrder, CheckpointReport
from pliant.appkit.coordinator.suspension_orders import SuspensionHandler
from pliant.core.model.checkpoint import SaveProgress, SaveStep

W = SaveProgress


class Desk:
    """A desk whose reports are kept."""

    def __init__(self) -> None:
        self.refusal = ""
        self.said: list[tuple[int, SaveProgress]] = []
        self.desk = SuspensionHandler(threading.RLock(), lambda: self.refusal, self._send)

    def _send(self, report: CheckpointReport) -> None:
        self.said.append((report.number, report.progress))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_from_the_order_to_the_word_to_leave(desk: Desk) -> None:
    work = desk.desk
    work.on_order(3, SaveStep.SAVE)
    work.on_order(3, SaveStep.SAVE)  # it is said again when nobody knows whether it came
    assert (work.pending, work.next_order()) == (True, CheckpointOrder(3))
    assert work.status() == CheckpointReport(3, W.HELD)
    assert work.begin(3)
    assert (work.pending, work.next_order()) == (False, None)
    work.on_order(3, SaveStep.LEAVE)  # too early: it counts when all is saved
    work.finish(CheckpointReport(3, W.SAVED))
    assert work.status() == CheckpointReport(3, W.SAVED)
    waiter = threading.Thread(target=work.wait_for_leave)
    waiter.start()
    work.on_order(2, SaveStep.LEAVE)
    waiter.join(0.05)
    assert waiter.is_alive()
    work.on_order(3, SaveStep.LEAVE)
    waiter.join()
    assert desk.said == [(3, W.BEGUN), (3, W.SAVED)]


def test_taken_back_in_time(desk: Desk) -> None:
    desk.desk.on_order(3, SaveStep.SAVE)
    desk.desk.on_order(3, SaveStep.KEEP)
    assert not desk.desk.pending
    assert not desk.desk.begin(3)
    assert desk.desk.status() is None
    assert desk.said == [(3, W.DECLINED)]


def test_taken_back_too_late_is_answered_with_how_far_it_is(desk: Desk) -> None:
    desk.desk.on_order(3, SaveStep.SAVE)
    desk.desk.begin(3)
    desk.desk.on_order(3, SaveStep.KEEP)
    assert desk.desk.status() == CheckpointReport(3, W.BEGUN)
    assert desk.said == [(3, W.BEGUN), (3, W.BEGUN)]


def test_a_save_that_failed_is_over(desk: Desk) -> None:
    desk.desk.on_order(3, SaveStep.SAVE)
    desk.desk.begin(3)
    desk.desk.finish(CheckpointReport(3, W.FAILED, "disk full"))
    assert desk.desk.status() is None
    desk.desk.on_order(4, SaveStep.SAVE)
    assert desk.desk.next_order() == CheckpointOrder(4)


def test_what_the_program_saves_by_itself_is_told_and_forgotten(desk: Desk) -> None:
    desk.desk.finish(CheckpointReport(0, W.SAVED))
    assert (desk.said, desk.desk.status()) == ([(0, W.SAVED)], None)


def test_an_order_that_cannot_be_taken_is_declined(desk: Desk) -> None:
    desk.refusal = "resize 2 is under way"
    desk.desk.on_order(3, SaveStep.SAVE)
    assert (desk.desk.pending, desk.said) == (False, [(3, W.DECLINED)])


def test_an_application_that_ends_declines_what_waits(desk: Desk) -> None:
    desk.desk.on_order(3, SaveStep.SAVE)
    desk.desk.close("the application is ending")
    desk.desk.close("the application is ending")
    assert desk.said == [(3, W.DECLINED)]
