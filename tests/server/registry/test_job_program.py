from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.server.registry.job_program import Program, expand, job_marks


@given(st.text(), st.text())
def test_output_paths(pattern: str, name: str) -> None:
    assert expand("%j-%x-%%j-%q%", job_marks(7, "a/b", "")) == "7-a_b-%j-%q%"
    assert "\0" not in expand(pattern.replace("\0", ""), job_marks(1, name.replace("\0", ""), ""))


@pytest.mark.case(52)
@given(
    st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\0", b""))),
    st.dictionaries(st.text("AB_", min_size=1), st.binary().map(lambda b: b.replace(b"\0", b""))),
)
def test_programs_keep_every_byte(argv: list[bytes], env: dict[str, bytes]) -> None:
    program = Program(
        tuple(part.decode("utf-8", "surrogateescape") for part in argv),
        {name: value.decode("utf-8", "surrogateescape") for name, value in env.items()},
        "/",
        "",
        "",
        "",
        0,
    )
    again = Program.from_json(program.to_json())
    assert again == program
    assert sorted(again.environment()) == sorted(
        name.encode() + b"=" + value for name, value in env.items()
    )


def test_a_program_of_an_older_server_is_not_recorded() -> None:
    program = Program((), {}, "/", "", "/%a", "", 0, record_load_s=0.05, tasks="1-3")
    assert Program.from_json(program.to_json()).of_task(7, 2).record_load_s == 0.05
    older = json.loads(program.to_json())
    del older["record_load_s"]
    assert Program.from_json(json.dumps(older)).record_load_s == 0.0


@pytest.mark.case(51)
def test_the_jobs_own_variables_go_first() -> None:
    program = Program((), {"A": "job"}, "/", "", "", "", 0)
    assert set(program.environment(A="server", B="server", C="")) == {b"A=job", b"B=server"}
