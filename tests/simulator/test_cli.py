"""``pliant simulate``: from its command line to what it writes; wrong input is one line."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pliant.core.commands import Note
from pliant.simulator.cli import main
from pliant.simulator.inputs.simulation_errors import SimulationError
from testkit import ROOT

#: Number, submit, -, run, allocated, -, -, requested, estimate, then nothing that matters.
SWF = """\
; MaxProcs: 8
1 0 -1 10 8 -1 -1 8 20 -1 1 1 1 -1 1 -1 -1 -1
2 2 -1 4 4 -1 -1 4 4 -1 1 2 1 -1 1 -1 -1 -1
3 3 -1 -1 4 -1 -1 4 4 -1 5 2 1 -1 1 -1 -1 -1
4 5 -1 30 2 -1 -1 2 10 -1 1 2 1 -1 1 -1 -1 -1
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    path.write_text(SWF)
    return path


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    try:
        code = main([str(word) for word in words])
    except SystemExit as stop:
        code = int(stop.code or 0)
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_log_and_its_json(capsys: pytest.CaptureFixture[str], log: Path) -> None:
    code, out, err = call(capsys, "--workload", log, "--strategy", "fcfs", "--json")
    assert (code, err) == (0, "")
    values = json.loads(out)
    assert (values["jobs"], values["timeout"], values["skipped"]) == (3, 1, 1)
    assert values["processors"] == 8
    assert values["mean_wait_s"] == (0 + 8 + 5) / 3
    # The run of 30 s ends at its estimate of 10.
    assert values["schedule_span_s"] == 20
    assert values["utilization"] == (80 + 16 + 20) / (8 * 20)
    required = """jobs utilization utilization_work mean_wait_s mean_turnaround_s mean_execution_s
        mean_bounded_slowdown schedule_span_s negotiations adaptations profit"""
    assert set(required.split()) <= values.keys()


def test_the_csv_of_the_jobs(capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path) -> None:
    table = tmp_path / "jobs.csv"
    assert call(capsys, "--workload", log, "--strategy", "fcfs", "--jobs-out", table)[0] == 0
    lines = table.read_text().splitlines()
    assert lines[0] == (
        "id,submit,start,end,processors,class,turnaround,wait,resizes,"
        "state,reason,profit,initial_size,final_size,priority,suspensions,suspended_s"
    )
    assert lines[1:3] == [
        "1,0,0,10,8,rigid,10,0,0,COMPLETED,,0,8,8,0,0,0",
        "2,2,10,14,4,rigid,12,8,0,COMPLETED,,0,4,4,0,0,0",
    ]
    assert lines[3].startswith("4,5,10,20,2,rigid,15,5,0,TIMEOUT,")
    assert "time limit" in lines[3]


def test_priorities_and_what_suspensions_cost(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--workload", "downey:jobs=40,gap=60", "--processors", 64, "--malleable", 100]
    words += ["--priorities", "30:5", "--strategy", "priority+preempt", "--restart-cost", "1-9"]
    code, out, _ = call(capsys, *words)
    assert code == 0
    assert "a suspension costs 30 s to save and 1-9 s to resume" in out
    values = json.loads(call(capsys, *words, "--json")[1])
    assert (values["checkpoint_cost"], values["restart_cost"]) == ("30", "1-9")
    assert values["priorities"] == "30:5"
    assert values["suspensions"] > 0
    assert values["suspension_cost_s"] > values["suspensions"] * 30
    free = json.loads(call(capsys, *words[:-2], "--strategy-option", "min-run-s=1e9", "--json")[1])
    assert (free["suspensions"], free["suspended_s"], free["suspension_cost_s"]) == (0, 0, 0)


def test_the_csv_of_several_runs_says_which(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table = tmp_path / "jobs.csv"
    words = ["--workload", "kumar:jobs=3", "--strategy", "fcfs", "--seed", 7, "--jobs-out", table]
    assert call(capsys, *words, "--replications", 2)[0] == 0
    head, *lines = table.read_text().splitlines()
    assert head.startswith("seed,id,submit,start,end,processors,class,turnaround,wait,resizes,")
    assert [line.split(",")[:2] for line in lines] == [[s, n] for s in "78" for n in "123"]
    assert call(capsys, *words[:4], "--seed", 8, "--jobs-out", table)[0] == 0
    assert [f"8,{line}" for line in table.read_text().splitlines()[1:]] == lines[3:]


def test_who_refused_is_asked_again_after_the_quiet_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--workload", "kumar:jobs=3,gap=1,minpe=1-4", "--strategy", "fpsma+pwa"]
    words += ["--answers", "random:0.3", "--json", "--seed", "3"]
    idle, asked = (json.loads(call(capsys, *words, *more)[1]) for more in ([], ["--quiet", "5"]))
    assert asked["negotiations"] > idle["negotiations"]
    assert asked["utilization"] > 0.9
    assert idle["utilization"] < 0.2


def test_jobs_wider_than_the_machine_are_counted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "wide.swf"
    path.write_text("1 0 -1 5 4\n2 1 -1 5 9\n3 2 -1 -1 4\n4 3 -1 5 64\n4 3 -1 5 64\n")
    words = ["--workload", path, "--strategy", "fcfs", "--processors", 8]
    code, out, _ = call(capsys, *words, "--json")
    values = json.loads(out)
    assert (code, values["jobs"], values["skipped"], values["skipped_too_wide"]) == (0, 1, 4, 2)
    assert values["skipped_reasons"] == {
        "wider than the machine": {
            "records": 2, "line": 2, "reason": "needs 9 processors, the machine has 8",
        },
        "without a run time": {"records": 1, "line": 3, "reason": "run time -1"},
        "of a job that has one already": {
            "records": 1, "line": 5, "reason": "job number 4 has been used in line 4",
        },
    }  # fmt: skip
    said = (
        ", 4 records skipped (2 wider than the machine, line 2 and on; "
        "1 without a run time, line 3; 1 of a job that has one already, line 5)\n"
    )
    assert said in call(capsys, *words)[1]


def test_malleable_jobs_costs_and_pictures(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra plots")
    pictures = ("gantt", "utilization", "queue", "sizes-over-time", "comparison")
    files = {name: tmp_path / name for name in ("jobs", "events", *pictures)}
    drawn = [word for name in pictures for word in (f"--{name}", files[name])]
    code, out, err = call(
        capsys, "--workload", log, "--malleable", 100, "--sizes", "2-8", "--negotiation-cost", 1,
        "--adaptation-cost", "0-1", "--answers", "random:0.9", "--negotiation", "parallel",
        "--jobs-out", files["jobs"], *drawn,
        "--events-out", files["events"], "--node-size", 2,
        "--safe-point-interval", 0.5, "--debug", "--seed", 3,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "adaptations" in out
    with files["jobs"].open() as file:
        assert {row["class"] for row in csv.DictReader(file)} == {"malleable"}
    for name in pictures:
        root = ElementTree.parse(files[name]).getroot()
        assert root.tag.endswith("svg")
    kinds = [json.loads(line)["kind"] for line in files["events"].read_text().splitlines()]
    assert "job.started" in kinds
    assert kinds.count("job.ended") == 3


def test_the_same_seed_gives_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--workload", "ghafoor:jobs=60,sizes=4-64", "--processors", 64, "--json", "--malleable", 50,
        "--sizes", "2-32", "--answers", "random:0.5", "--negotiation-cost", "1-9",
    )  # fmt: skip
    first = call(capsys, *words, "--seed", 1)
    assert first == call(capsys, *words, "--seed", 1)
    assert first != call(capsys, *words, "--seed", 2)


def test_replications_have_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--workload", "kumar:gap=60", "--jobs", 40, "--replications", 3)
    code, out, _ = call(capsys, *words, "--json")
    assert code == 0
    values = json.loads(out)
    interval = values["intervals"]["mean_turnaround_s"]
    assert interval["low"] < interval["mean"] == values["mean_turnaround_s"] < interval["high"]
    assert "3 runs" in call(capsys, *words)[1]


def test_backfill_is_a_part_of_the_strategy(capsys: pytest.CaptureFixture[str], log: Path) -> None:
    words = ("--workload", log, "--json", "--strategy")
    easy = call(capsys, *words, "fcfs+easy")[1]
    assert call(capsys, *words, "fcfs", "--backfill", "easy")[1] == easy
    assert call(capsys, *words, "fcfs+easy", "--backfill", "easy")[1] == easy


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
def test_dynp_backfills_as_it_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, backfill: str
) -> None:
    path = tmp_path / "long.swf"
    lines = [
        f"{n} {n} -1 {90 - 7 * (n % 11)} {1 + n * 5 % 8} -1 -1 {1 + n * 5 % 8} 100 -1 1 1"
        + " -1" * 6
        for n in range(1, 60)
    ]
    path.write_text("; MaxProcs: 8\n" + "\n".join(lines) + "\n")
    words = ("--workload", path, "--json", "--strategy", "dynp")
    values = json.loads(call(capsys, *words, "--backfill", backfill)[1])
    same = json.loads(call(capsys, *words, "--strategy-option", f"backfill={backfill}")[1])
    assert values["mean_wait_s"] == same["mean_wait_s"]
    other = json.loads(call(capsys, *words, "--strategy-option", "backfill=none")[1])
    assert (values["mean_wait_s"] == other["mean_wait_s"]) == (backfill == "none")


def test_several_strategies_are_compared_on_the_same_jobs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--workload", "kumar:jobs=60,gap=50", "--replications", 3)
    names = ("fcfs", "equipartition", "dynp")
    chosen = [word for name in names for word in ("--strategy", name)]
    path = tmp_path / "jobs.csv"
    own = ("--strategy-option", "lower=60", "--jobs-out", path)
    values = json.loads(call(capsys, *words, *chosen, *own, "--json")[1])
    assert [entry["strategy"] for entry in values["strategies"]] == list(names)
    assert [entry["options"] for entry in values["strategies"]] == [{}, {}, {"lower": "60"}]
    for entry in values["strategies"][:2]:
        alone = json.loads(call(capsys, *words, "--strategy", entry["strategy"], "--json")[1])
        assert alone["intervals"] == entry["intervals"]
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert {(row["strategy"], row["seed"]) for row in rows} >= {("fcfs", "0"), ("fcfs", "2")}
    first = {row["id"]: row["submit"] for row in rows if row["seed"] == "1"}
    assert all(first[row["id"]] == row["submit"] for row in rows if row["seed"] == "1")
    code, out, _ = call(capsys, *words, *chosen)
    assert code == 0
    heads = next(line for line in out.splitlines() if line.startswith("metric"))
    assert heads.split() == ["metric", *names]
    assert any(line.startswith("mean_turnaround_s") and "±" in line for line in out.splitlines())


def test_malleable_jobs_have_defaults_that_are_shown(
    capsys: pytest.CaptureFixture[str], log: Path
) -> None:
    words = ("--workload", log, "--malleable", 100)
    out = call(capsys, *words)[1]
    assert "100 % of the jobs malleable: sizes p/2-2p, speedup downey:p,1" in out
    values = json.loads(call(capsys, *words, "--json")[1])
    shown = {"percent": 100.0, "sizes": "p/2-2p", "speedup": "downey:p,1"}
    assert values["malleable"] == shown
    model = ("--workload", "ghafoor:jobs=20", "--malleable", 50, "--json")
    assert json.loads(call(capsys, *model)[1])["malleable"]["speedup"] == "as the workload says"
    linear = json.loads(call(capsys, *words, "--json", "--speedup", "linear")[1])
    assert linear["malleable"]["speedup"] == "linear"
    assert linear["mean_execution_s"] != values["mean_execution_s"]


def test_clusters_add_up_to_the_machine(capsys: pytest.CaptureFixture[str], log: Path) -> None:
    words = ("--workload", log, "--strategy", "fcfs", "--json")
    out = call(capsys, *words, "--clusters", "a:8,b:4")[1]
    assert json.loads(out)["processors"] == 12


def test_clusters_alone_are_the_machine_of_the_workload(
    capsys: pytest.CaptureFixture[str], log: Path
) -> None:
    """As if their sum had been named as well: of models, of malleable sizes, and of logs."""
    model = ("downey:jobs=20", "--malleable", 100, "--clusters", "a:128,b:128")
    narrow = (log, "--clusters", "a:3,b:2")
    for words, processors in ((model, 256), (narrow, 5)):
        alone = call(capsys, "--json", "--workload", *words)
        assert alone[0] == 0
        assert alone == call(capsys, "--json", "--workload", *words, "--processors", processors)
    assert json.loads(alone[1])["skipped_too_wide"] == 1


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ([], 2, "--workload"),
        (["--workload", "none.swf"], 1, "none.swf"),
        (["--workload", "LOG", "--processors", "2"], 0, ""),
        (["--workload", "LOG", "--processors", "1"], 1, "usable"),
        (["--workload", "LOG", "--processors", "0"], 2, "--processors: expected a whole number"),
        (["--workload", "LOG", "--strategy", "fastest"], 2, "known are: "),
        (["--workload", "LOG", "--strategy-option", "speed=1"], 2, "no option 'speed'"),
        (["--workload", "LOG", "--strategy-option", "speed"], 2, "write NAME=VALUE"),
        (
            ["--workload", "LOG", "--strategy", "dynp", "--strategy-option", "lower=9000",
             "--strategy-option", "upper=600"],
            2, "lower",
        ),
        (["--workload", "LOG", "--negotiation-cost", "9-2"], 2, "--negotiation-cost: cost 9-2"),
        (["--workload", "LOG", "--adaptation-cost", "x"], 2, "--adaptation-cost: cost 'x': write"),
        (["--workload", "LOG", "--answers", "perhaps"], 2, "answers 'perhaps': write one of"),
        (["--workload", "LOG", "--malleable", "101"], 2, "--malleable: expected a share"),
        (["--workload", "LOG", "--malleable", "50", "--sizes", "8-2"], 2, "--sizes: sizes '8-2'"),
        (["--workload", "LOG", "--clusters", "a"], 2, "--clusters: clusters 'a': write"),
        (["--workload", "LOG", "--clusters", "a:4", "--processors", "8"], 2, "leave processors"),
        (["--workload", "LOG", "--clusters", "a:1"], 1, "needs 8 processors, the machine has 1"),
        (["--workload", "LOG", "--node-failures", "x"], 2, "node-failures 'x': write"),
        (["--workload", "LOG", "--backfill", "all"], 2, "--backfill"),
        (["--workload", "LOG", "--strategy", "fcfs+easy", "--backfill", "none"], 2, "--backfill"),
        (["--workload", "LOG", "--safe-point-interval", "-1"], 2, "expected seconds"),
        (["--workload", "LOG", "--shrinking-factor", "0"], 2, "--shrinking-factor"),
        (["--workload", "LOG", "--side-file", "none.csv"], 1, "none.csv"),
        (["--workload", "LOG", "--jobs-out", "/none/x.csv"], 2, "--jobs-out /none/x.csv: cannot"),
        (["--workload", "kumar:speed=1"], 1, "there is no parameter 'speed'"),
        (["--workload", "LOG", "--jo", "3"], 2, "unknown option --jo"),
        (["--workload", "LOG", "--processors", "99999999999"], 2, "processors: at most 16777216"),
        (["--workload", "LOG", "--clusters", "a:99999999999"], 2, "processors: at most 16777216"),
        (["--workload", "LOG", "--sizes", "2-8"], 2, "--sizes: applies to malleable jobs only"),
        (["--workload", "LOG", "--speedup", "linear"], 2, "--speedup: applies to malleable jobs"),
        (["--workload", "LOG", "--malleable", "50", "--speedup", "fast"], 2, "--speedup: speedup"),
        (["--workload", "LOG", "--malleable", "50", "--sizes", "2p-p"], 2, "--sizes: '2p-p'"),
        (["--workload", "LOG", "--malleable", "50", "--sizes", "q-2p"], 2, "--sizes: 'q-2p'"),
        (["--workload", "LOG", "--strategy", "sjf", "--strategy", "sjf"], 2, "sjf: given twice"),
        (["--workload", "LOG", "--strategy", "sjf", "--strategy", "fcfs", "--gantt", "x"], 2,
         "--gantt: shows one strategy"),
        (["--workload", "LOG", "--strategy", "sjf", "--strategy", "fcfs", "--strategy-option",
          "speed=1"], 2, "none of sjf, fcfs has this option"),
        (["--workload", "LOG", "--jobs-out", "/dev/full"], 1, "--jobs-out /dev/full: cannot be"),
        (["--workload", "LOG", "--events-out", "/dev/full"], 1, "No space left on device"),
        (["--workload", "LOG", "--gantt", "/dev/full"], 1, "--gantt /dev/full: cannot be written"),
        (["--workload", "LOG", "--strategy", "os:system"], 2, "cannot be made: TypeError"),
        (["--workload", "LOG", "--strategy", "no.such:thing"], 2, "cannot be loaded: Module"),
        (["--workload", "LOG", "--strategy", "builtins:list"], 2, "is not a pliant Strategy"),
        (["--workload", "LOG", "--strategy", ""], 2, "known are: "),
        (["--workload", "LOG", "--strategy-option", "=1"], 2, "write NAME=VALUE"),
        (["--workload", "LOG", "--strategy", "dynp", "--strategy-option", "lower=nan"], 2, "lower"),
        (["--workload", "LOG", "--strategy", "egs", "--strategy-option", "initial=big"], 2,
         "initial: 'big' is not one of lo, max, preferred"),
        (["--workload", "LOG", "--strategy", "equipartition", "--strategy-option",
          "max-pass-over=1.5"], 2, "max-pass-over: '1.5' is not a whole number"),
        (["--workload", "LOG", "--backfill", "easy", "--strategy", "max-fit"], 2, "no backfill"),
        (["--workload", "LOG", "--backfill", "none", "--strategy", "max-fit"], 2, "no backfill"),
        (["--workload", "LOG", "--backfill", "none", "--strategy", "dynp+easy"], 2, "--backfill"),
        (["--workload", "LOG", "--backfill", "easy", "--strategy", "egs+pra"], 2, "no backfill"),
        (["--workload", "LOG", "--backfill", "easy", "--strategy", "fast"], 2, "known are: "),
        (["--workload", "LOG", "--backfill", "none", "--strategy", "dynp", "--strategy-option",
          "backfill=easy"], 2, "--backfill none"),
        (["--workload", "kumar:jobs=3,jobs=4"], 1, "kumar: jobs: given twice"),
        (["--workload", "kumar:jobs"], 1, "kumar: expected parameter=value"),
        (["--workload", "kumar:jobs=0"], 1, "kumar: jobs: expected at least 1"),
        (["--workload", "kumar:jobs=5,gap=nan"], 1, "kumar: gap: expected a number"),
        (["--workload", "kumar:jobs=5,minpe=64-16"], 1, "the minimum 64 is above the maximum 16"),
        (["--workload", "kumar:jobs=5,minpe=1-128"], 1, "minpe: expected at most 64"),
        (["--workload", "kumar:jobs=5,speedup=amdahl:2"], 1, "speedup: speedup 'amdahl:2'"),
        (["--workload", "ghafoor:jobs=5,spread=odd"], 1, "spread: expected one of even, random"),
        (["--workload", "LOG", "--answers", "random:2"], 2, "random:P:partial (0 <= P <= 1)"),
        (["--workload", "LOG", "--clusters", "a:4,a:4"], 2, "clusters: two have the same name"),
        (["--workload", "LOG", "--adaptation-cost", "1-inf"], 2, "both bounds are numbers"),
        (["--workload", "LOG", "--shrinking-factor", "nan"], 2, "expected a factor > 0"),
        (["--workload", "LOG", "--shrinking-factor", "1e308"], 1, "shrinking factor 1e+308: job 2"),
        (["--workload", "LOG", "--adaptation-cost", "1e308"], 2, "seconds from 0 to 1e+30"),
        (["--workload", "LOG", "--negotiation-cost", "0-1e308"], 2, "seconds from 0 to 1e+30"),
        (["--workload", "kumar:jobs=5,profit=1e308,deadline=9"], 1, "profit: expected a number"),
        (["--workload", "kumar:jobs=5,base_time=1e308"], 1, "work: expected a number from 0"),
        (["--workload", "LOG", "--evolving", "500"], 2, "--evolving: expected a share"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line(
    capsys: pytest.CaptureFixture[str], log: Path, words: list[str], code: int, text: str
) -> None:
    found, _, err = call(capsys, *(str(log) if word == "LOG" else word for word in words))
    assert found == code, err
    assert text in err
    assert err.count("\n") == (code != 0)
    assert "Traceback" not in err


def test_no_file_is_written_over_by_another(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = tmp_path / "same"
    (tmp_path / "link").symlink_to(log)
    for words, text in (
        (
            ("--jobs-out", same, "--events-out", same),
            "--events-out .*same: is also the file of --jobs",
        ),
        (("--gantt", tmp_path / "link"), "--gantt .*link: is also the file of --workload"),
    ):
        code, _, err = call(capsys, "--workload", log, *words)
        assert code == 2
        assert re.search(text, err)
    assert log.read_text() == SWF
    assert not same.exists()
    # The name of a model is no file.
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "--workload", "kumar:jobs=2", "--jobs-out", "kumar:jobs=2")[0] == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, SimulationError("broken")])
def test_a_simulation_that_is_broken_off_leaves_no_empty_files(
    error: type[BaseException] | BaseException,
    capsys: pytest.CaptureFixture[str],
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(*_: object, on_note: Callable[[Note], None], **__: object) -> None:
        on_note(Note(0.0, "job.started", "so far"))
        raise error

    monkeypatch.setattr(import_module("pliant.simulator.run.simulate"), "simulate", stop)
    kept = tmp_path / "kept"
    kept.touch()
    words = ["--workload", log, "--jobs-out", tmp_path / "jobs", "--utilization", kept]
    code = call(capsys, *words, "--events-out", tmp_path / "events")[0]
    assert code == (130 if error is KeyboardInterrupt else 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events", "kept", "small.swf"]


def test_the_command_is_registered() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert 'simulate = "pliant.simulator.cli:main"' in text


def test_help_names_every_option_of_the_design(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "--help")
    assert code == 0
    options = (
        "workload processors strategy backfill jobs malleable sizes malleable-spread evolving "
        "strategy-option negotiation-cost adaptation-cost shrinking-factor seed json jobs-out "
        "gantt utilization queue sizes-over-time comparison negotiation answers clusters "
        "safe-point-interval node-failures "
        "replications events-out side-file"
    )
    for option in options.split():
        assert f"--{option}" in out


def test_pictures_without_matplotlib_are_refused_before_the_simulation(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pliant.simulator.pictures.figure.can_draw", lambda: False)
    code, out, err = call(capsys, "--workload", log, "--queue", tmp_path / "queue.png")
    assert (code, out) == (2, "")
    assert "--queue: pictures need matplotlib; install pliant[plots]" in err
    assert not (tmp_path / "queue.png").exists()
