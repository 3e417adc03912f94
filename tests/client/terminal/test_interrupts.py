from __future__ import annotations

import os
import signal

import pytest

from pliant.client.terminal.interrupts import Interrupted, Interrupts


def test_a_signal_is_raised_once() -> None:
    with Interrupts() as interrupts:
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.number == signal.SIGTERM


def test_a_shield_delays_it() -> None:
    steps = []

    def shielded(interrupts: Interrupts) -> None:
        with interrupts.shielded():
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("inside")
        steps.append("after")

    with Interrupts() as interrupts, pytest.raises(Interrupted):
        shielded(interrupts)
    assert steps == ["inside"]


def test_taking_down_is_not_torn() -> None:
    with Interrupts() as interrupts:
        interrupts.ignore()
        with interrupts.shielded():
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.number == signal.SIGINT


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
