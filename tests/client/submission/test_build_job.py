from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from pliant.client.client_errors import SubmitError, UsageError
from pliant.client.submission.build_job import build_job
from pliant.client.submission.file_checks import current_umask, default_name


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def program(path: Path, text: str = "#!/bin/sh\n", mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_plain_job(here: Path) -> None:
    job = build_job([sys.executable, "-c", "pass"])
    assert job["argv"] == [sys.executable, "-c", "pass"]
    assert job["env"] == dict(os.environ)
    assert (job["cwd"], job["type"], job["sizes"]) == (str(here), "mpi", "1")
    assert job["stdout"] == str(here / "pliant-%j.out")
    assert (job["stdin"], job["stderr"]) == ("", "")
    assert job["name"] == Path(sys.executable).name


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("python heat.py 10 -m x", "heat.py"),
        ("/usr/bin/python3.11 -u -X dev -W error apps/heat.py", "heat.py"),
        ("python -m pliant.examples.heat --size 4", "pliant.examples.heat"),
        ("python -um heat", "heat"),
        ("python -mheat", "heat"),
        ("python -m mpi4py heat.py", "heat.py"),
        ("python -c pass", "python"),
        ("python -", "python"),
        ("python", "python"),
        ("bash -e run.sh", "run.sh"),
        ("sh -c true", "sh"),
        ("sh -ec true", "sh"),
        ("./solver input", "solver"),
    ],
)
def test_a_job_is_called_after_the_file_it_runs(words: str, name: str) -> None:
    program, *arguments = words.split()
    assert default_name(program, arguments) == name


def test_a_script_with_the_lines_of_windows(here: Path) -> None:
    program(here / "run.sh", "#!/bin/sh\r\necho\r\n")
    with pytest.raises(SubmitError, match=r"lines end with CR LF.*sed -i 's/\\r\$//' run\.sh"):
        build_job(["./run.sh"])


def test_programs_are_looked_up_in_the_exported_path(here: Path) -> None:
    (here / "bin").mkdir()
    tool = program(here / "bin" / "tool")
    assert build_job(["tool"], env={"PATH": f"/nowhere:{here}/bin"})["argv"] == [str(tool)]
    assert build_job(["tool"], env={"PATH": "bin"})["argv"] == [str(tool)]
    with pytest.raises(SubmitError, match=r"program: 'tool' is not in PATH \(/nowhere\)"):
        build_job(["tool"], env={"PATH": "/nowhere"})


def test_a_program_that_is_here_but_not_in_path(here: Path) -> None:
    program(here / "tool", "no script")
    with pytest.raises(SubmitError, match=r"write \./tool"):
        build_job(["tool"], env={"PATH": "/nowhere"})
    assert build_job(["./tool"])["argv"] == [f"{here}/./tool"]


def test_links_are_kept(here: Path) -> None:
    (here / "python").symlink_to(sys.executable)
    assert build_job(["./python"])["argv"][0].startswith(str(here))


def test_scripts_need_no_path_and_no_permission(here: Path) -> None:
    plain = program(here / "plain.sh", "echo\n", 0o644)
    odd = program(here / "odd.sh", "#!/usr/bin/env bash -e\n", 0o644)
    good = program(here / "good.sh")
    job = build_job(["plain.sh", "x"])
    assert (job["type"], job["argv"]) == ("script", ["/bin/sh", str(plain), "x"])
    assert build_job(["odd.sh"])["argv"] == ["/usr/bin/env", "bash -e", str(odd)]
    assert build_job(["good.sh"])["argv"] == [str(good)]
    assert build_job(["good.sh"], type="mpi")["type"] == "mpi"
    assert build_job(["sh", "good.sh"])["type"] == "mpi"


@pytest.mark.parametrize("name", ["x.slurm", "x.sbatch", "x.job", "x.bash"])
def test_scripts_that_sbatch_takes_are_taken(here: Path, name: str) -> None:
    script = program(here / name, "#!/bin/sh\n#JOB -n 4\n", 0o644)
    job = build_job([name])
    assert (job["type"], job["name"], job["argv"]) == ("script", name, ["/bin/sh", str(script)])
    assert build_job([f"./{name}"])["type"] == "script"


def test_a_script_without_suffix_is_found_here_but_not_before_path(here: Path) -> None:
    script = program(here / "night", "#!/bin/sh\n")
    assert build_job(["night"])["argv"] == [str(script)]
    program(here / "true", "#!/bin/sh\n")
    assert build_job(["true"])["argv"] == [shutil.which("true")]


def test_what_cannot_be_run(here: Path) -> None:
    program(here / "app.py", mode=0o644)
    with pytest.raises(SubmitError, match=r"not executable; chmod \+x it, .*jobsub python app\.py"):
        build_job(["./app.py"])
    with pytest.raises(SubmitError, match="no such file"):
        build_job(["./missing"])
    (here / "folder").mkdir()
    with pytest.raises(SubmitError, match="is not a file"):
        build_job(["./folder"])
    with pytest.raises(UsageError, match="name is empty"):
        build_job([""])
    with pytest.raises(UsageError, match="no program"):
        build_job([])


def test_the_directory(here: Path) -> None:
    (here / "sub").mkdir()
    program(here / "tool")
    job = build_job(["./tool"], chdir="sub", stdout="o")
    assert (job["cwd"], job["stdout"]) == (f"{here}/sub", f"{here}/sub/o")
    assert job["argv"] == [f"{here}/./tool"]
    with pytest.raises(SubmitError, match=r"chdir: .*missing does not exist; make it"):
        build_job(["true"], chdir="missing")
    with pytest.raises(SubmitError, match="is not a directory"):
        build_job(["true"], chdir="tool")


def test_a_removed_directory(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = here / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(SubmitError, match="chdir: this directory has been removed; cd to another"):
        build_job(["true"])


def test_output_files(here: Path) -> None:
    with pytest.raises(SubmitError, match=r"output: the directory .*/logs does not exist; mkdir"):
        build_job(["true"], stdout="logs/%j.out")
    with pytest.raises(SubmitError, match=r"mkdir -p '/.*/out dir', or name another"):
        build_job(["true"], stdout="out dir/%j.out")
    with pytest.raises(SubmitError, match=r"error: .* is a directory"):
        build_job(["true"], stderr=str(here))
    assert build_job(["true"], stdout="%x/%j.out")["stdout"] == f"{here}/%x/%j.out"
    assert build_job(["true"], stdout="/dev/null")["stdout"] == "/dev/null"


def test_unknown_patterns_in_file_names_are_refused(here: Path) -> None:
    for text, unknown in [("%z.out", "%z"), ("p-%4j.out", "%4j"), ("a%%%s", "%s")]:
        for field, option in [("output", "stdout"), ("error", "stderr"), ("input", "stdin")]:
            with pytest.raises(SubmitError, match=f"^{field}: .* no pattern {unknown}; .*%t; .*%%"):
                build_job(["true"], **{option: text})  # type: ignore[arg-type]
    for name in ("100%", "%%z-%j", "5% off", "%A_%a", "%x.%u.%N.%n.%t"):
        assert build_job(["true"], stdout=name)["stdout"] == str(here / name)
    (here / "data%z").touch()
    assert build_job(["true"], stdin="data%z")["stdin"] == str(here / "data%z")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_files_that_cannot_be_written(here: Path) -> None:
    (here / "locked").mkdir(mode=0o500)
    with pytest.raises(SubmitError, match=r"locked cannot be written; name another with --output"):
        build_job(["true"], stdout="locked/out")
    program(here / "old", mode=0o400)
    with pytest.raises(SubmitError, match="old cannot be written"):
        build_job(["true"], stdout="old")


def test_input_files(here: Path) -> None:
    (here / "data").touch()
    assert build_job(["true"], stdin="data")["stdin"] == f"{here}/data"
    with pytest.raises(SubmitError, match=r"^input: .*missing cannot be read"):
        build_job(["true"], stdin="missing")


@pytest.mark.usefixtures("here")
class TestLimits:
    @pytest.mark.case(50)
    def test_one_long_argument(self) -> None:
        build_job(["true", "x" * (128 * 1024 - 2)])
        with pytest.raises(SubmitError, match="put it into a file"):
            build_job(["true", "x" * 128 * 1024])

    @pytest.mark.case(51)
    def test_one_long_variable(self) -> None:
        with pytest.raises(SubmitError, match=r"^environment: 'LONG=x"):
            build_job(["/bin/true"], env={"LONG": "x" * 128 * 1024})

    def test_arguments_that_are_too_long_together_are_refused(self) -> None:
        many = ["x" * 100_000] * (os.sysconf("SC_ARG_MAX") // 100_000 + 1)
        with pytest.raises(SubmitError, match="arguments and environment have"):
            build_job(["true", *many])

    def test_an_argument_with_a_nul_is_refused(self) -> None:
        with pytest.raises(SubmitError, match="NUL"):
            build_job(["true", "a\0b"])


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("sizes", ["0", "x", "4-2", "1-8:pow3", "", "-1", "{1,0}"])
def test_bad_sizes_are_wrong_usage(sizes: str) -> None:
    with pytest.raises(UsageError, match="sizes"):
        build_job(["true"], sizes=sizes)


@pytest.mark.usefixtures("here")
def test_a_preferred_size_must_be_allowed() -> None:
    assert build_job(["true"], sizes="1-8", prefer=4)["prefer"] == 4
    with pytest.raises(UsageError, match="preferred size 9"):
        build_job(["true"], sizes="1-8", prefer=9)
    with pytest.raises(UsageError, match="preferred size 2"):
        build_job(["true"], sizes="4", prefer=2)


def test_umask_is_read_and_not_changed() -> None:
    before = os.umask(0o027)
    try:
        assert current_umask() == 0o027
        assert stat.S_IMODE(os.umask(0o027)) == 0o027
    finally:
        os.umask(before)


def test_what_a_job_needs_of_its_nodes() -> None:
    words = ["/bin/true"]
    assert not {"memory_bytes", "gres", "constraint"} & build_job(words).keys()
    job = build_job(
        words, mem_per_cpu="4G", gpus=2, gres=["fpga"], constraint="a|b", nodelist="n[1-3]"
    )
    assert (job["memory_bytes"], job["gres"]) == (4 << 30, {"fpga": 1, "gpu": 2})
    assert (job["constraint"], job["nodelist"], "exclude" in job) == ("a|b", "n[1-3]", False)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"mem_per_cpu": "x"}, "--mem-per-cpu: 'x' is not"),
        ({"gpus": 1, "gres": ["gpu:2"]}, "name them once"),
        ({"gres": ["1"]}, "--gres"),
        ({"constraint": "a&"}, "--constraint: 'a&' is not"),
        ({"nodelist": "n["}, "--nodelist"),
        ({"exclude": "n["}, "--exclude"),
    ]
    for options, reason in wrong:
        with pytest.raises(UsageError, match=reason):
            build_job(words, **options)
