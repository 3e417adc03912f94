"""The coordinator's desk for suspensions: what is answered to whom, and what is said again."""

from __future__ import annotations

import threading

import pytest

from pliant.appkit.coordinator.checkpoint_messages import SaveOrder, SaveReport
from pliant.appkit.coordinator.suspension import Suspensions
from pliant.core.model.checkpoint import SaveStep, SaveWord

W = SaveWord


class Desk:
    """A desk whose reports are kept."""

    def __init__(self) -> None:
        self.refusal = ""
        self.said: list[tuple[int, SaveWord]] = []
        self.desk = Suspensions(threading.RLock(), lambda: self.refusal, self._send)

    def _send(self, report: SaveReport) -> None:
        self.said.append((report.number, report.word))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_from_the_order_to_the_word_to_leave(desk: Desk) -> None:
    work = desk.desk
    work.hear(3, SaveStep.SAVE)
    work.hear(3, SaveStep.SAVE)  # it is said again when nobody knows whether it came
    assert (work.pending, work.proposed()) == (True, SaveOrder(3))
    assert work.held() == SaveReport(3, W.HELD)
    assert work.begin(3)
    assert (work.pending, work.proposed()) == (False, None)
    work.hear(3, SaveStep.LEAVE)  # too early: it counts when all is saved
    work.finish(SaveReport(3, W.SAVED))
    assert work.held() == SaveReport(3, W.SAVED)
    waiter = threading.Thread(target=work.wait_for_leave)
    waiter.start()
    work.hear(2, SaveStep.LEAVE)
    waiter.join(0.05)
    assert waiter.is_alive()
    work.hear(3, SaveStep.LEAVE)
    waiter.join()
    assert desk.said == [(3, W.BEGUN), (3, W.SAVED)]


def test_taken_back_in_time(desk: Desk) -> None:
    desk.desk.hear(3, SaveStep.SAVE)
    desk.desk.hear(3, SaveStep.KEEP)
    assert not desk.desk.pending
    assert not desk.desk.begin(3)
    assert desk.desk.held() is None
    assert desk.said == [(3, W.DECLINED)]


def test_taken_back_too_late_is_answered_with_how_far_it_is(desk: Desk) -> None:
    desk.desk.hear(3, SaveStep.SAVE)
    desk.desk.begin(3)
    desk.desk.hear(3, SaveStep.KEEP)
    assert desk.desk.held() == SaveReport(3, W.BEGUN)
    assert desk.said == [(3, W.BEGUN), (3, W.BEGUN)]


def test_a_save_that_failed_is_over(desk: Desk) -> None:
    desk.desk.hear(3, SaveStep.SAVE)
    desk.desk.begin(3)
    desk.desk.finish(SaveReport(3, W.FAILED, "disk full"))
    assert desk.desk.held() is None
    desk.desk.hear(4, SaveStep.SAVE)
    assert desk.desk.proposed() == SaveOrder(4)


def test_what_the_program_saves_by_itself_is_told_and_forgotten(desk: Desk) -> None:
    desk.desk.finish(SaveReport(0, W.SAVED))
    assert (desk.said, desk.desk.held()) == ([(0, W.SAVED)], None)


def test_an_order_that_cannot_be_taken_is_declined(desk: Desk) -> None:
    desk.refusal = "resize 2 is under way"
    desk.desk.hear(3, SaveStep.SAVE)
    assert (desk.desk.pending, desk.said) == (False, [(3, W.DECLINED)])


def test_an_application_that_ends_declines_what_waits(desk: Desk) -> None:
    desk.desk.hear(3, SaveStep.SAVE)
    desk.desk.close("the application is ending")
    desk.desk.close("the application is ending")
    assert desk.said == [(3, W.DECLINED)]
