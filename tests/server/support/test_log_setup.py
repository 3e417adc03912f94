from __future__ import annotations

import pytest

from pliant.server.support.log_setup import escape_control


@pytest.mark.case(53)
def test_one_event_is_one_line() -> None:
    assert escape_control("a\r\n\x1b[31mb\udcff") == r"a\r\n\x1b[31mb\udcff"
    assert escape_control("é plain") == "é plain"
