from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pliant.client.commands.jobsub import main
from testkit import fresh_modules, run_python

Capture = pytest.CaptureFixture[str]
NEXT_YEAR = time.localtime().tm_year + 1
MakeJob = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def accepting(server: Any) -> Any:
    server.answers["submit"] = {"id": 12}
    return server


@pytest.mark.usefixtures("accepting")
def test_prints_the_id(capsys: Capture) -> None:
    assert main(["true"]) == 0
    assert main(["--parsable", "true"]) == 0
    assert capsys.readouterr() == ("12\n12\n", "")


@pytest.mark.usefixtures("accepting")
def test_json(capsys: Capture) -> None:
    assert main(["--json", "true"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": 12}


def test_every_option_is_sent(accepting: Any, tmp_path: Path) -> None:
    (tmp_path / "in").touch()
    words = ["-n", "1-8", "--prefer", "4", "--type", "uni", "--name", "x", "--time", "2h"]
    words += ["--estimate", "90s", "--hold", "--requeue", "-i", "in", "-o", "%x.o", "-e", "%j.e"]
    words += ["--when-cut-off", "stop-after=30", "--open-mode", "append"]
    words += ["--record-load", "50ms"]
    words += ["--speedup", "amdahl:0.9", "--grow-if", "always"]
    words += ["--resource", "lic=2", "--resource", "tok=1/proc"]
    assert main([*words, "--export", "ALL,Q=1", "--", "true", "-n", "3", "--wait"]) == 0
    job = accepting.last["job"]
    assert job["argv"][1:] == ["-n", "3", "--wait"]
    assert job["env"] == {**os.environ, "Q": "1"}
    del job["argv"], job["env"], job["umask"], job["key"]
    assert job == {
        "name": "x",
        "cwd": str(tmp_path),
        "type": "uni",
        "sizes": "1-8",
        "prefer": 4,
        "stdin": f"{tmp_path}/in",
        "stdout": f"{tmp_path}/%x.o",
        "stderr": f"{tmp_path}/%j.e",
        "open_mode": "append",
        "record_load_s": 0.05,
        "hold": True,
        "requeue": True,
        "when_cut_off": "stop-after=30",
        "time_limit_s": 7200.0,
        "estimate_s": 90.0,
        "speedup": "amdahl:0.9",
        "grow_if": "always",
        "resources": ["lic=2", "tok=1/proc"],
    }


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ([], {}),
        (["--deadline", "2h"], {"deadline_s": 7200.0}),
        (
            ["--deadline", "2h", "--profit", "9:soft=0"],
            {"deadline_s": 7200.0, "profit": "9:soft=0"},
        ),
        (
            ["--deadline", f"{NEXT_YEAR}-12-31"],
            {"deadline_at": time.mktime((NEXT_YEAR, 12, 31, 0, 0, 0, 0, 0, -1))},
        ),
    ],
)
def test_a_contract_is_sent_by_those_who_have_one(
    accepting: Any, words: list[str], sent: dict[str, Any]
) -> None:
    assert main([*words, "true"]) == 0
    job = accepting.last["job"]
    names = ("deadline_s", "deadline_at", "profit")
    assert {name: job[name] for name in names if name in job} == sent


@pytest.mark.parametrize(("words", "sent"), [([], None), (["--priority", "-3"], -3)])
def test_a_priority_is_sent_by_those_who_state_one(
    accepting: Any, words: list[str], sent: int | None
) -> None:
    assert main([*words, "true"]) == 0
    assert accepting.last["job"].get("priority") == sent


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--priority", "urgent"], "--priority"),
        (["--priority", "1000001"], "--priority"),
        (["--deadline", "soon"], "--deadline"),
        (["--profit", "9"], "--deadline"),
        (["--deadline", "2h", "--profit", "much"], "--profit"),
    ],
)
def test_a_contract_that_makes_no_sense_is_wrong_usage(
    words: list[str], says: str, capsys: Capture
) -> None:
    code: object = None
    try:
        code = main([*words, "true"])
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "script", "said"),
    [
        ([], "", None),
        (["--requeue"], "", True),
        (["--no-requeue"], "", False),
        ([], "--no-requeue", False),
        (["--requeue"], "--no-requeue", True),
    ],
)
def test_requeue_is_sent_only_if_it_was_stated(
    accepting: Any, tmp_path: Path, words: list[str], script: str, said: bool | None
) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/sh\n#JOB {script}\ntrue\n")
    assert main([*words, "run.sh"]) == 0
    assert accepting.last["job"]["requeue"] is said


def test_directives_and_the_command_line_wins(accepting: Any, tmp_path: Path) -> None:
    lines = [
        "#!/bin/sh",
        "#JOB -n 4 --name script --export A=1",
        "#JOB --time 10",
        "#JOB --when-cut-off stop-after=5 --open-mode append",
        "true",
        "",
    ]
    (tmp_path / "run.sh").write_text("\n".join(lines))
    assert main(["-n", "2", "--export", "B=2", "run.sh", "arg"]) == 0
    job = accepting.last["job"]
    assert (job["sizes"], job["name"], job["time_limit_s"]) == ("2", "script", 600.0)
    assert (job["env"].get("A"), job["env"]["B"]) == (None, "2")
    assert (job["type"], job["argv"][-1]) == ("script", "arg")
    assert (job["when_cut_off"], job["open_mode"]) == ("stop-after=5", "append")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("#JOB --xyzzy", "run.sh:3: #JOB --xyzzy: unknown option --xyzzy; write options"),
        ("#JOB other.sh", "run.sh:3: #JOB other.sh: 'other.sh' is no option"),
        ("#JOB --time never", "run.sh:3: #JOB --time never: argument --time: 'never' is not"),
        ("#JOB --speedup quick", "argument --speedup: speedup 'quick': write one of linear"),
        ("#JOB --when-cut-off no", "argument --when-cut-off: 'no' is no policy; write keep, or"),
    ],
)
def test_bad_directives(line: str, says: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/sh\n#JOB -n 2\n{line}\n")
    assert exit_code(["run.sh"]) == 2
    assert says in capsys.readouterr().err


def exit_code(words: list[str]) -> int:
    try:
        return main(words)
    except SystemExit as stop:
        return int(stop.code or 0)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--"],
        ["-n", "0", "true"],
        ["-n", "8-1", "true"],
        ["--prefer", "0", "true"],
        ["--time", "soon", "true"],
        ["--type", "charm", "true"],
        ["--when-cut-off", "stop-after=-1", "true"],
        ["--when-cut-off", "stop-after=", "true"],
        ["--when-cut-off", "stop-after= 3", "true"],
        ["--when-cut-off", "stop-after=1_0", "true"],
        ["--when-cut-off", "stop-after=5x", "true"],
        ["--when-cut-off", "stop-after=5000d", "true"],
        ["--when-cut-off", "keep=5m", "true"],
        ["--record-load", "1", "true"],
        ["--record-load", "9ms", "true"],
        ["--record-load", "2m", "true"],
        ["--record-load", "60.1s", "true"],
        ["--prefer", "1_0", "true"],
        ["--siz", "4", "true"],
        ["--bogus", "true"],
    ],
)
def test_wrong_usage(words: list[str], capsys: Capture) -> None:
    assert exit_code(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("jobsub: ")


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("30", "30"),
        ("2.5", "2.5"),
        ("5m", "300"),
        ("1h30m", "5400"),
        ("01:00:00", "3600"),
        ("0s", "0"),
    ],
)
def test_a_grace_with_or_without_a_unit(accepting: Any, time: str, seconds: str) -> None:
    assert main(["--when-cut-off", f"stop-after={time}", "true"]) == 0
    assert accepting.last["job"]["when_cut_off"] == f"stop-after={seconds}"


def test_a_failed_check_names_field_and_remedy(capsys: Capture) -> None:
    assert main(["./missing"]) == 1
    assert "jobsub: program: " in capsys.readouterr().err


def test_a_refusal_is_shown_without_its_escapes(server: Any, capsys: Capture) -> None:
    server.refuse("submit", "no\x1b[2J", kind="invalid", field="sizes")
    assert main(["true"]) == 1
    assert capsys.readouterr().err == "jobsub: no\\x1b[2J\n"


def test_no_server(state_dir: Path, capsys: Capture) -> None:
    assert main(["true"]) == 3
    assert str(state_dir.parent / "run" / "server.sock") in capsys.readouterr().err


def test_a_server_that_leaves_is_asked_again_for_the_same_job(server: Any) -> None:
    server.answers["submit"] = lambda _: (
        {"id": 12} if len(server.requests) == 3 else {"raw": b"CLOSE"}
    )
    assert main(["true"]) == 0
    assert len({request["job"]["key"] for request in server.requests}) == 1


class TestWait:
    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"state": "COMPLETED", "exit_code": 0}, 0),
            ({"state": "FAILED", "exit_code": 7}, 7),
            ({"state": "FAILED", "signal": 9}, 137),
            ({"state": "TIMEOUT", "signal": 15}, 143),
            ({"state": "CANCELLED"}, 1),
            ({"state": "REJECTED", "reason": "too large"}, 1),
        ],
    )
    def test_exits_with_the_code_of_the_job(
        self, accepting: Any, make_job: MakeJob, changes: dict[str, Any], code: int
    ) -> None:
        accepting.answers["wait"] = {"job": make_job(12, **changes)}
        assert main(["--wait", "true"]) == code
        assert accepting.last == {"op": "wait", "id": 12}

    def test_json_is_the_final_job(
        self, accepting: Any, make_job: MakeJob, capsys: Capture
    ) -> None:
        accepting.answers["wait"] = {"job": make_job(12, state="COMPLETED", exit_code=0)}
        assert main(["--wait", "--json", "true"]) == 0
        assert json.loads(capsys.readouterr().out)["state"] == "COMPLETED"

    def test_a_server_that_is_restarted_is_asked_again(
        self, accepting: Any, make_job: MakeJob
    ) -> None:
        asked = []

        def answer(request: dict[str, Any]) -> dict[str, Any]:
            asked.append(request)
            final = {"job": make_job(12, state="COMPLETED", exit_code=0)}
            return final if len(asked) == 3 else {"raw": b"CLOSE"}

        accepting.answers["wait"] = answer
        assert main(["--wait", "true"]) == 0


def test_help_is_cheap() -> None:
    loaded = fresh_modules("from pliant.client.commands.jobsub import main; main(['--help'])")
    assert loaded & {"grpc", "rich", "sqlalchemy", "numpy", "google", "click"} == set()


def test_submitting_loads_little(accepting: Any) -> None:
    loaded = fresh_modules("from pliant.client.commands.jobsub import main; main(['true'])")
    assert accepting.last["op"] == "submit"
    assert loaded & {"asyncio", "dataclasses", "inspect", "subprocess", "grpc", "rich"} <= {
        "dataclasses",  # the finder of an editable installation
        "inspect",
    }


@pytest.mark.usefixtures("accepting")
def test_as_a_program() -> None:
    done = run_python("-m", "pliant.client.commands.jobsub", sys.executable, "-V", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "12\n", "")


@pytest.mark.parametrize("option", ["--parsable", "--json", "--wait"])
def test_an_id_that_cannot_be_written_is_in_the_error(accepting: Any, option: str) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "pliant.client.commands.jobsub", option, sys.executable]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr == (
        "jobsub: job 12 was submitted, but its id cannot be written: no space left on device\n"
    )
    assert accepting.last["op"] == "submit"


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        ({"accepted": True, "start": 1000.0, "processors": 4, "price": 0.0}, 0,
         "accepted: starts now, on 4 processors, at a price of 0"),
        ({"accepted": True, "start": 1090.0, "processors": 1}, 0, "starts in 1m30s"),
        ({"accepted": True, "start": None, "processors": 2}, 0, "not known, on 2 processors: why"),
        ({"accepted": False, "start": None, "processors": 0}, 1, "rejected: why (strategy fcfs)"),
        ({"accepted": None, "start": None, "processors": 0}, 1, "not known: why (strategy fcfs)"),
    ],
)  # fmt: skip
def test_a_query_submits_nothing(
    server: Any, answer: dict[str, Any], code: int, says: str, capsys: Capture
) -> None:
    full = {"price": None, "reason": "why", "strategy": "fcfs", "now": 1000.0, **answer}
    server.answers["query"] = full
    assert main(["--query", "-n", "2", "--deadline", "2h", "true"]) == code
    assert server.last["op"] == "query"
    assert server.last["job"]["deadline_s"] == 7200.0
    assert says in capsys.readouterr().out
    assert main(["--query", "--json", "true"]) == code
    found = json.loads(capsys.readouterr().out)
    assert found == {name: value for name, value in full.items() if name != "now"}


@pytest.mark.parametrize("option", ["--hold", "--wait", "--parsable"])
def test_a_query_takes_no_options_of_a_submission(
    server: Any, capsys: Capture, option: str
) -> None:
    assert main(["--query", option, "true"]) == 2
    assert f"leave out {option}" in capsys.readouterr().err
    assert not server.requests
