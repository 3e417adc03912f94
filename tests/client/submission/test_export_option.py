from __future__ import annotations

import pytest

from pliant.client.client_errors import SubmitError
from pliant.client.submission.export_option import PLAIN_PATH, select_environment

MINE = {"HOME": "/home/ada", "PATH": "/opt/bin", "A": "1", "B": "2", "ODD": "x\udcff"}


def test_all_is_the_default() -> None:
    assert select_environment([], MINE) == MINE
    assert select_environment(["ALL"], MINE) == MINE


def test_none_leaves_what_every_job_has() -> None:
    assert select_environment(["NONE"], MINE) == {"HOME": "/home/ada", "PATH": PLAIN_PATH}


def test_names_are_the_only_ones() -> None:
    plain = {"HOME": "/home/ada", "PATH": PLAIN_PATH}
    assert select_environment(["A,ODD"], MINE) == plain | {"A": "1", "ODD": "x\udcff"}
    assert select_environment(["A", "B"], MINE) == plain | {"A": "1", "B": "2"}
    assert select_environment(["PATH"], MINE) == {"HOME": "/home/ada", "PATH": "/opt/bin"}


def test_values_come_on_top() -> None:
    assert select_environment(["C=3"], MINE) == MINE | {"C": "3"}
    assert select_environment(["NONE,C=3"], MINE)["C"] == "3"
    assert select_environment(["A=9,ALL"], MINE)["A"] == "9"


def test_a_value_may_hold_commas_and_equal_signs() -> None:
    assert select_environment(["L=1,2,3,M=a=b"], MINE) == MINE | {"L": "1,2,3", "M": "a=b"}


@pytest.mark.parametrize("choice", ["MISSING", "1X", "a-b", "=x", "2=3"])
def test_faults_name_the_field(choice: str) -> None:
    with pytest.raises(SubmitError, match=r"^export: "):
        select_environment([choice], MINE)
