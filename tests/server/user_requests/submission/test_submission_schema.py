from __future__ import annotations

import pytest

from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests.submission.submission_schema import check_submission

STAGE = {"upload": "0" * 32, "size": 1, "sha256": "0" * 64}


@pytest.mark.case(55)
@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"argv": []}, "argv", "needs a program"),
        ({"argv": "x"}, "argv", "Expected array, got str"),
        ({"argv": ["a\0b"]}, "argv", "zero byte"),
        ({"argv": ["x" * 131_072]}, "argv", "the limit is 131071"),
        ({"argv": ["x" * 100_000] * 21}, "argv", "the limit is 2000000"),
        ({"env": {"": "x"}}, "env", "no name for a variable"),
        ({"env": {"A=B": "x"}}, "env", "no name for a variable"),
        ({"cwd": "here"}, "cwd", "absolute"),
        ({"umask": 0o1000}, "umask", "0 to 0777"),
        ({"umask": True}, "umask", "got bool"),
        ({"type": "charm"}, "type", "Invalid enum value"),
        ({"sizes": "0"}, "sizes", "at least 1"),
        ({"sizes": "8-2"}, "sizes", "above the maximum"),
        ({"sizes": "a"}, "sizes", "write one of"),
        ({"sizes": "9"}, "sizes", "sizes 9 can never be satisfied: the cluster has 8 processors"),
        ({"sizes": "1-4", "prefer": 7}, "prefer", "preferred size 7"),
        ({"sizes": "2", "type": "uni"}, "sizes", "type uni has one processor"),
        ({"time_limit_s": 0}, "time_limit_s", "more than 0"),
        ({"time_limit_s": float("nan")}, "time_limit_s", "more than 0"),
        ({"estimate_s": float("inf")}, "estimate_s", "more than 0"),
        ({"when_cut_off": "stop"}, "when_cut_off", "write keep, or stop-after=SECONDS"),
        ({"when_cut_off": 30}, "when_cut_off", "got int"),
        ({"resources": ["gpu=1"]}, "resources", "no resource 'gpu' (it has lic)"),
        ({"resources": ["lic=4"]}, "resources", "the cluster has 3; ask for at most 3"),
        ({"resources": ["lic=1", "lic=1"]}, "resources", "named twice"),
        ({"stage": {**STAGE, "out": ["a:b"]}}, "stage", "must not hold ':'"),
        ({"stage": {**STAGE, "out": ["a\0"]}}, "stage", "zero byte"),
        ({"nonsense": 1}, "nonsense", "unknown field"),
    ],
)
def test_bad_submissions_are_named(change: dict[str, object], field: str, message: str) -> None:
    with pytest.raises(UserRequestError) as error:
        check_submission({"argv": ["true"], "cwd": "/", **change}, 8, amounts={"lic": 3})
    assert error.value.field == field
    assert message in str(error.value)


def test_without_nodes_users_are_told_to_come_again() -> None:
    with pytest.raises(UserRequestError) as error:
        check_submission({"argv": ["true"], "cwd": "/"}, 0)
    assert error.value.kind == "unavailable"
