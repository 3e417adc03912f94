"""Where the options and the script of a job come from."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from pliant.client.commands.jobsub import main
from pliant.client.submission import directives

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(directives, "SITE_DEFAULTS", str(tmp_path / "site"))
    server.answers["submit"] = {"id": 1}
    return tmp_path


def type_in(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_a_script_is_read_from_standard_input(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "#!/bin/bash -e\n#JOB --time 2h --name night\necho $1\n"
    for words in (["-"], [], ["-", "a", "-n"]):
        type_in(monkeypatch, text)
        assert main(words) == 0
        job = server.last["job"]
        assert job["argv"][1:4] == ["-e", "-c", text]
        assert job["argv"][5:] == words[1:]
        assert (job["type"], job["name"], job["time_limit_s"]) == ("script", "night", 7200.0)


def test_a_python_script_gets_its_arguments(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, "#!/usr/bin/env python3\nprint(1)\n")
    assert main(["-", "x"]) == 0
    assert server.last["job"]["argv"][1:] == ["-c", "#!/usr/bin/env python3\nprint(1)\n", "x"]


def test_other_interpreters_need_a_file(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, "#!/usr/bin/awk -f\n")
    assert main(["-"]) == 1
    assert server.requests == []


def test_a_command_of_the_shell(server: Any) -> None:
    assert main(["--wrap", "echo a && echo b", "-o", "out"]) == 0
    job = server.last["job"]
    assert job["argv"][:2] == ["/bin/sh", "-c"]
    assert "echo a && echo b" in job["argv"][2]
    with pytest.raises(SystemExit, match="2"):
        main(["--wrap", "true", "true"])


def test_the_command_line_wins_over_script_user_and_site(server: Any, place: Path) -> None:
    (place / "site").write_text("--time 1h --priority 1\n# a comment\n\n--comment site\n")
    (place / "config/pliant").mkdir(parents=True)
    (place / "config/pliant/jobsub").write_text("--time 2h --name user\n--priority 2\n")
    script = place / "run.sh"
    script.write_text("#!/bin/sh\n#JOB --time 3h --priority 3\n")

    def sent(*words: str) -> tuple[Any, ...]:
        assert main([*words]) == 0
        job = server.last["job"]
        return tuple(job.get(key) for key in ("time_limit_s", "priority", "name", "comment"))

    assert sent("--time", "4h", "run.sh") == (14400.0, 3, "user", "site")
    assert sent("run.sh") == (10800.0, 3, "user", "site")
    assert sent("true") == (7200.0, 2, "user", "site")
    (place / "config/pliant/jobsub").unlink()
    assert sent("true") == (3600.0, 1, "true", "site")
    (place / "site").unlink()
    assert sent("true") == (None, None, "true", None)


def test_each_source_replaces_the_exports_of_the_one_before(server: Any, place: Path) -> None:
    (place / "site").write_text("--export NONE,A=site\n")
    script = place / "run.sh"
    script.write_text("#!/bin/sh\n#JOB --export NONE,A=script\n")
    assert main(["--export", "NONE,A=line", "run.sh"]) == 0
    assert server.last["job"]["env"]["A"] == "line"
    assert main(["run.sh"]) == 0
    assert server.last["job"]["env"]["A"] == "script"
    assert main(["true"]) == 0
    assert server.last["job"]["env"]["A"] == "site"


def test_a_wrong_default_names_file_and_line(server: Any, place: Path, capsys: Capture) -> None:
    (place / "site").write_text("--time 1h\n--tim 2h\n")
    assert main(["true"]) == 2
    assert f"{place / 'site'}:2" in capsys.readouterr().err
    assert server.requests == []


def test_components_are_sent_with_their_sum(server: Any, capsys: Capture) -> None:
    assert main(["--components", "4,2", "true"]) == 0
    job = server.last["job"]
    assert (job["components"], job["sizes"]) == ([4, 2], "6")
    assert main(["true"]) == 0
    assert "components" not in server.last["job"]
    for text in ("4,,2", "0", "4;2", "many"):
        with pytest.raises(SystemExit, match="2"):
            main(["--components", text, "true"])
        assert "as in 4,2" in capsys.readouterr().err


def test_conditions_and_comments_are_sent(server: Any) -> None:
    words = ["--dependency", "afterok:1,singleton", "--signal", "USR1@60", "--time", "1h"]
    assert main([*words, "--comment", "for the paper", "true"]) == 0
    job = server.last["job"]
    assert job["dependency"] == "afterok:1,singleton"
    assert job["signal"] == "USR1@60"
    assert job["comment"] == "for the paper"
    assert main(["true"]) == 0
    assert {"dependency", "signal", "comment"}.isdisjoint(server.last["job"])


@pytest.mark.parametrize(
    "words",
    [["--dependency", "17"], ["--signal", "USR1@60"], ["--signal", "KILL@6", "--time", "1h"]],
    ids=str,
)
def test_wrong_conditions_are_wrong_usage(server: Any, words: list[str]) -> None:
    assert main([*words, "true"]) == 2
    assert server.requests == []


def test_test_only_submits_nothing(server: Any) -> None:
    answer = {"accepted": True, "start": None, "processors": 1, "reason": "ok", "price": None}
    server.answers["query"] = answer | {"strategy": "fcfs", "now": 0.0}
    assert main(["--test-only", "true"]) == 0
    assert [request["op"] for request in server.requests] == ["query"]


@pytest.mark.parametrize(
    ("word", "meant"), [("--ntasks", "-n"), ("-J", "--name"), ("--mem=4G", "--mem-per-cpu")]
)
def test_options_of_slurm_get_a_hint(word: str, meant: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([word, "8", "true"])
    first = capsys.readouterr().err.splitlines()[0]
    assert word.partition("=")[0] in first
    assert meant in first.split()


SLURM = (
    "#!/bin/sh\n#SBATCH --ntasks=4\n#SBATCH -t 10\n#SBATCH --gpus=4\n"
    + "#SBATCH --hold\n" * 10
    + "echo 1\n"
)


def test_a_script_for_slurm_is_refused(server: Any, place: Path, capsys: Capture) -> None:
    (place / "run.sh").write_text(SLURM)
    assert main(["run.sh"]) == 2
    assert main(["-n", "4", "--query", "run.sh"]) == 2
    lines = [line.strip() for line in capsys.readouterr().err.splitlines()[:15]]
    assert lines[1:4] == [
        "run.sh:2: #SBATCH --ntasks=4 (use -n)",
        "run.sh:3: #SBATCH -t 10 (use --time)",
        "run.sh:4: #SBATCH --gpus=4 (--gpus is the number for each process)",
    ]
    assert lines[12:14] == ["run.sh:13: #SBATCH --hold (--hold is the same)", "and 1 more"]
    assert "--ignore-other-directives" in lines[14]
    assert server.requests == []


@pytest.mark.parametrize("mark", ["#SBATCH", "#PBS", "#BSUB"])
def test_lines_of_other_systems_can_be_ignored(
    server: Any, place: Path, mark: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    text = f"{mark} -n 4\n"
    (place / "run.sh").write_text(text)
    type_in(monkeypatch, f"#!/bin/sh\n{text}")
    assert main(["run.sh"]) == main([]) == 2
    assert f"standard input:2: {mark} -n 4" in capsys.readouterr().err
    assert main(["--ignore-other-directives", "run.sh"]) == 0
    assert server.last["job"]["sizes"] == "1"
    (place / "run.sh").write_text(f"{text}#JOB -n 2\nsrun ./x $SLURM_JOB_ID\n")
    assert main(["run.sh"]) == 0
    assert server.last["job"]["sizes"] == "2"
    (place / "run.sh").write_text(f"#{mark} -n 4\necho\n{text}")
    assert main(["run.sh"]) == 0
    assert capsys.readouterr().err == ""


def test_lines_of_a_script_that_is_found_here_are_read(server: Any, place: Path) -> None:
    (place / "run.slurm").write_text("#!/bin/sh\n#JOB -n 4\n")
    assert main(["run.slurm"]) == 0
    assert server.last["job"]["sizes"] == "4"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# JOB -n 4\n# JOB --time 2h\n", "run.sh:2: # JOB -n 4: is a comment; write `#JOB -...`"),
        ("#JOB-n 4\n", "run.sh:2: #JOB-n 4: is a comment"),
        ("#job: --time 2h\n", "run.sh:2: #job: --time 2h: is a comment"),
        (
            "echo $SLURM_JOB_ID ${SLURM_FOO} $SLURM_JOB_ID\necho $SLURM_NTASKS\n",
            "run.sh: the variable SLURM_JOB_ID is not set; use PLIANT_JOB (also SLURM_FOO, "
            "SLURM_NTASKS)",
        ),
        ("srun ./solver\n", "`srun` does not start processes; use `pliant run`"),
        ("echo\n#JOB -n 4\n#JOB --hold\n", "run.sh:3: #JOB -n 4: is not read, because line 2 is a"),
        ("# JOB control\n##JOB -n 4\n# JOBS -n\n# $SLURM_JOB_ID\necho\n# JOB -n 4\n", ""),
    ],
)
def test_lines_without_effect_get_one_warning(
    place: Path, capsys: Capture, text: str, says: str
) -> None:
    (place / "run.sh").write_text(f"#!/bin/sh\n{text}")
    assert main(["run.sh"]) == 0
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == bool(says)
    assert says in "".join(warnings)
