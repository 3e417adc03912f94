from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

import pytest

from pliant.client.commands.jobstat import FIELDS, main, summary
from pliant.client.listing.columns import COLUMNS, elapsed

Capture = pytest.CaptureFixture[str]
MakeJob = Callable[..., dict[str, Any]]


def test_the_table_shows_running_and_waiting_jobs(
    server: Any, make_job: MakeJob, capsys: Capture
) -> None:
    waiting = make_job(
        12, name="w" * 50, state="PENDING", start=None, processors=0, reason="4 of 8 are free"
    )
    server.answers["jobs"] = {"jobs": [make_job(3, prefer=4), waiting]}
    assert main([]) == 0
    assert server.last.items() >= {"op": "jobs", "ids": None, "all": False}.items()
    head, first, second = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == "id name user class state procs sizes time start reason"
    assert first.split()[:8] == ["3", "job3", "ada", "malleable", "RUNNING", "4", "1-8", "(4)"]
    assert second.startswith("12  " + "w" * 31 + "…")
    assert second.endswith("  4 of 8 are free")


@pytest.mark.parametrize(
    ("processors", "held", "shown"), [(4, 4, "4"), (4, 6, "4+2"), (0, 0, "-"), (4, None, "4")]
)
def test_processors_held_in_addition_are_shown_separately(
    server: Any, make_job: MakeJob, capsys: Capture, processors: int, held: int, shown: str
) -> None:
    server.answers["jobs"] = {"jobs": [make_job(3, processors=processors, held=held)]}
    assert main([]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[5] == shown


def test_a_contract_has_columns_where_somebody_has_one(
    server: Any, make_job: MakeJob, capsys: Capture
) -> None:
    contract = {"deadline_s": 100.0, "profit": 8.0, "soft": 0.5, "penalty": 0.0}
    known = {"submit": 1000.0, "contract": contract, "deadline": 1100.0, "promise": "accepted"}
    jobs = [
        make_job(1),
        make_job(2, **known, expected_end=1075.0),
        make_job(3, **known, expected_end=None, state="PENDING"),
    ]
    server.answers["jobs"] = {"jobs": jobs, "now": 1010.0}
    assert main([]) == 0
    head, first, second, third = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head[-4:-1] == ["deadline", "ends", "profit"]
    assert first.count("-") >= 3
    assert "4/8" in second
    assert "?/8" in third
    assert main(["--json"]) == 0
    assert [job.get("profit_now") for job in json.loads(capsys.readouterr().out)] == [None, 4, None]


def test_priorities_have_a_column_where_somebody_has_one(
    server: Any, make_job: MakeJob, capsys: Capture
) -> None:
    server.answers["jobs"] = {"jobs": [make_job(1), make_job(2, priority=-5)]}
    assert main([]) == 0
    head, first, second = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head[4:7] == ["state", "priority", "procs"]
    assert (first[5], second[5]) == ("0", "-5")
    assert "priority" in server.last["fields"]


def test_names_cannot_steer_the_terminal(server: Any, make_job: MakeJob, capsys: Capture) -> None:
    server.answers["jobs"] = {"jobs": [make_job(name="\x1b]0;owned\x07\nx")]}
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "\\x1b]0;owned\\x07\\nx" in out
    assert len(out.splitlines()) == 2


def test_json(server: Any, make_job: MakeJob, capsys: Capture) -> None:
    record = make_job(1)
    del record["signal"]
    server.answers["jobs"] = {"jobs": [record]}
    assert main(["--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert list(found)[: len(FIELDS)] == list(FIELDS)
    assert found["signal"] is None
    assert server.last["all"] is True


def test_spans_are_of_the_servers_clock(server: Any, make_job: MakeJob, capsys: Capture) -> None:
    start = time.time() + 3600
    server.answers["jobs"] = {"jobs": [make_job(1, start=start)], "now": start + 125}
    assert main([]) == 0
    assert "  2m05s  " in capsys.readouterr().out


def test_jobs_named_by_id_are_shown_although_they_have_ended(
    server: Any, make_job: MakeJob, capsys: Capture
) -> None:
    server.answers["jobs"] = {"jobs": [make_job(1, state="FAILED", exit_code=3)]}
    assert main(["1"]) == 0
    assert server.last.items() >= {"op": "jobs", "all": True}.items()
    assert server.last["ids"] == [1]
    assert "exit code 3" in capsys.readouterr().out
    assert main(["1", "2"]) == 1
    assert capsys.readouterr().err == "jobstat: there is no job 2\n"


def test_an_empty_queue(server: Any, capsys: Capture) -> None:
    server.answers["jobs"] = {"jobs": []}
    assert main([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_watch_ends_cleanly(
    server: Any, make_job: MakeJob, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["jobs"] = {"jobs": [make_job(1)]}
    naps = iter([None])

    def sleep(_: float) -> None:
        if next(naps, "end") == "end":
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert main(["--watch"]) == 0
    out = capsys.readouterr().out
    assert out.count("1 job: 1 RUNNING") == 2
    assert "\x1b" not in out


WATCH = "import sys; from pliant.client.commands.jobstat import main; sys.exit(main(['--watch']))"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watch_leaves_the_screen_and_the_scrollback_of_a_terminal(
    server: Any, make_job: MakeJob, number: signal.Signals
) -> None:
    server.answers["jobs"] = {"jobs": [make_job(each) for each in range(1, 40)]}
    own, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (10, 80))
    with subprocess.Popen([sys.executable, "-c", WATCH], stdout=terminal) as process:
        os.close(terminal)
        shown = b""
        while b"more lines" not in shown:
            shown += os.read(own, 4096)
        process.send_signal(number)
        while chunk := _read(own):
            shown += chunk
    os.close(own)
    assert process.returncode == (0 if number is signal.SIGINT else 128 + number)
    assert shown.startswith(b"\x1b[?1049h")
    assert shown.endswith(b"\x1b[?1049l")
    assert b"\x1b[3J" not in shown
    assert shown.count(b"RUNNING") < 39


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other side is closed
        return b""


def test_watching_an_unknown_job_is_an_error(
    server: Any, make_job: MakeJob, capsys: Capture
) -> None:
    server.answers["jobs"] = {"jobs": [make_job(1)]}
    assert main(["--watch", "1", "8", "9"]) == 1
    assert capsys.readouterr() == (
        "",
        "jobstat: there is no job 8\n  there is no job 9\n",
    )


@pytest.mark.usefixtures("state_dir")
def test_no_server_and_wrong_usage(capsys: Capture) -> None:
    assert main([]) == 3
    with pytest.raises(SystemExit, match="2"):
        main(["one"])
    with pytest.raises(SystemExit, match="2"):
        main(["1_x"])
    for every in ("0", "1_0", "inf", "-1"):
        with pytest.raises(SystemExit, match="2"):
            main(["--watch", "--every", every])
    assert "jobstat: " in capsys.readouterr().err


def test_elapsed_time_counts_from_submission_then_start_until_the_end() -> None:
    assert elapsed(10.0, None, None, 15.0) == 5.0
    assert elapsed(10.0, 12.0, None, 15.0) == 3.0
    assert elapsed(10.0, 12.0, 13.0, 15.0) == 1.0


def test_the_summary_counts_jobs_by_state() -> None:
    assert summary([]) == "0 jobs"
    assert summary(["RUNNING", "RUNNING", "PENDING"]) == "3 jobs: 2 RUNNING, 1 PENDING"


def test_blocks_and_rows_of_the_fields_that_it_asks_for(
    server: Any, make_job: MakeJob, capsys: Capture
) -> None:
    full = [make_job(1), make_job(2, state="PENDING", processors=0, start=None, reason="waits")]
    full += [make_job(number, name="same") for number in (30, 400, 5000)]
    server.answers["jobs"] = {"jobs": full, "missing": [], "now": 1_700_000_100.0}
    assert main([]) == 0
    expected = capsys.readouterr().out
    fields = server.last["fields"]
    rows = [[job.get(name) for name in fields] for job in full]
    server.answers["jobs"] = {"fields": fields, "rows": rows, "now": 1_700_000_100.0}
    assert main([]) == 0
    assert capsys.readouterr().out == expected
    assert server.last["by_column"] is True
    columns = [[*zip(*rows[:2], strict=True)], [*zip(*rows[2:], strict=True)]]
    columns[1] = [column[:1] if len({*column}) == 1 else column for column in columns[1]]
    blocks = [{"count": len(c[0]), "columns": c} for c in columns]
    server.answers["jobs"] = {"fields": fields, "blocks": blocks, "now": 1_700_000_100.0}
    assert main([]) == 0
    assert capsys.readouterr().out == expected
    server.answers["starts"] = {"starts": {"2": 1_700_000_160.0, "400": 1.0}}
    assert main(["-O", "id,starts", "--no-header"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[1].startswith("~")


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["-u", "ada,bob", "-u", "eve"], {"users": ["ada", "bob", "eve"]}),
        (["--state", "pd,running"], {"states": ["PENDING", "RUNNING"], "all": False}),
        (["-t", "node-fail"], {"states": ["NODE_FAIL"], "all": True}),
        (["--name", "sim*"], {"names": ["sim*"]}),
    ],
)
def test_the_server_selects(server: Any, words: list[str], fields: dict[str, Any]) -> None:
    server.answers["jobs"] = {"jobs": []}
    assert main(words) == 0
    assert server.last.items() >= fields.items()


def test_since_is_a_time_before_now(server: Any) -> None:
    server.answers["jobs"] = {"jobs": []}
    before = time.time()
    assert main(["--since", "2h"]) == 0
    assert before - 7200 <= server.last["since"] <= time.time() - 7200
    assert main(["--since", "2026-01-02T03:04"]) == 0
    assert server.last["since"] == time.mktime((2026, 1, 2, 3, 4, 0, 0, 0, -1))


@pytest.mark.parametrize(
    "words",
    [["-t", "gone"], ["--since", "soon"], ["-O", "id,colour"], ["-O", "id:0"], ["-u", ","]],
    ids=str,
)
def test_wrong_selections_and_formats_are_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)


def test_numbers_and_selections_exclude_each_other(server: Any) -> None:
    assert main(["1", "-u", "ada"]) == 2
    assert server.requests == []


def test_a_format_names_columns_and_widths(server: Any, make_job: MakeJob, capsys: Capture) -> None:
    server.answers["jobs"] = {"jobs": [make_job(1, name="a-long-name", time_limit_s=3600.0)]}
    assert main(["-O", "id,name:6,limit,account"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["id", "name", "limit", "account"]
    assert line.split() == ["1", "a-lon…", "1h00m", "-"]
    assert {"name", "time_limit_s", "account"} <= set(server.last["fields"])
    assert "cwd" not in server.last["fields"]
    assert main(["-O", "id", "--no-header"]) == 0
    assert capsys.readouterr().out.split() == ["1"]


def test_every_column_can_be_shown(server: Any, make_job: MakeJob, capsys: Capture) -> None:
    server.answers["jobs"] = {"jobs": [make_job(1)], "now": 1_700_000_100.0}
    server.answers["starts"] = {"starts": {}}
    assert main(["-O", ",".join(COLUMNS)]) == 0
    head, _ = capsys.readouterr().out.splitlines()
    assert head.split() == list(COLUMNS)


def test_the_limit_and_the_expected_start(server: Any, make_job: MakeJob, capsys: Capture) -> None:
    now = 1_700_000_100.0
    running = make_job(1, time_limit_s=3600.0, limit_end=now + 60)
    waiting = make_job(2, state="PENDING", start=None, processors=0, time_limit_s=1800.0)
    server.answers["jobs"] = {"jobs": [running, waiting], "now": now}
    server.answers["starts"] = {"starts": {"2": now + 60}}
    assert main(["-O", "id,limit,left,starts"]) == 0
    _, first, second = (line.split() for line in capsys.readouterr().out.splitlines())
    assert first[1:3] == ["1h00m", "1m00s"]
    assert second[1:3] == ["30m00s", "30m00s"]
    assert second[3] == "~" + time.strftime("%H:%M:%S", time.localtime(now + 60))
    assert main(["--start"]) == 0
    assert "~" in capsys.readouterr().out


def test_wide_has_whole_names_and_narrow_keeps_to_the_terminal(
    server: Any, make_job: MakeJob, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    job = make_job(1, name="n" * 50, reason="because " * 20)
    server.answers["jobs"] = {"jobs": [job]}
    server.answers["starts"] = {"starts": {}}
    assert main(["--wide"]) == 0
    assert "n" * 50 in capsys.readouterr().out
    assert main(["--narrow"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) == 60
