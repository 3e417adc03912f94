"""Names of signals."""

from __future__ import annotations

import signal

import pytest

from pliant.core.support.signals import parse_signal, signal_name


@pytest.mark.parametrize("text", ["USR1", "SIGUSR1", "usr1", "10"])
def test_a_signal_by_name_or_number(text: str) -> None:
    assert parse_signal(text) == signal.SIGUSR1


def test_the_names_are_those_of_this_machine() -> None:
    for each in signal.Signals:
        if signal_name(each) != str(int(each)):
            assert parse_signal(each.name) == each


@pytest.mark.parametrize("text", ["", "0", "65", "USR3", "SIG", "-9", "9.0", "USR1 "])
def test_what_is_no_signal(text: str) -> None:
    with pytest.raises(ValueError, match="is no signal"):
        parse_signal(text)
