"""Bad input gets a clear error, the right exit code, and loses nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from clusterkit.commands import Said, run_command
from clusterkit.shared import running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[Cluster]:
    with running_cluster("fcfs") as cluster:
        yield cluster


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with what a careless user has in it."""
    (tmp_path / "plain").write_text("no program\n")
    (tmp_path / "syntax.yaml").write_text("a: [\n")
    (tmp_path / "key.yaml").write_text("strateggy: fcfs\n")
    (tmp_path / "type.yaml").write_text("offer_timeout_s: soon\n")
    return tmp_path


# -------------------------------------------------------------------- without a server


@pytest.mark.usefixtures("state_dir")
@pytest.mark.parametrize("words", ["jobsub true", "jobctl why 1"])
def test_no_server(words: str) -> None:
    said = run_command(*words.split())
    assert said.code == 3
    assert "no server answers on" in said.line
    assert "pliant up" in said.line


DAEMONS = ["server", "nodectl"]


@pytest.mark.usefixtures("state_dir")
@pytest.mark.parametrize("daemon", DAEMONS)
def test_configurations_that_cannot_be_used(daemon: str, folder: Path) -> None:
    expected = {
        "missing.yaml": "No such file or directory",
        "syntax.yaml": "not YAML",
        "key.yaml": "strateggy: ",
    }
    for name, text in expected.items():
        said = run_command("pliant", daemon, "--config", name, cwd=folder)
        assert said.code == 2, said
        assert said.line.startswith(f"pliant {daemon}: {name}: "), said
        assert text in said.line


@pytest.mark.usefixtures("state_dir")
def test_a_value_of_the_wrong_type_is_named(folder: Path) -> None:
    said = run_command("pliant", "server", "--config", "type.yaml", cwd=folder)
    assert (said.code, "offer_timeout_s: expected a number of seconds" in said.line) == (2, True)


def test_up_refuses_before_it_keeps_or_starts_anything(folder: Path, state_dir: Path) -> None:
    unknown = run_command("pliant", "up", "--detach", "--strategy", "tarot")
    assert unknown.code == 2
    assert "'tarot' is not known; known are: " in unknown.line
    assert " equipartition, " in unknown.line
    said = run_command("pliant", "up", "--detach", "--config", "key.yaml", cwd=folder)
    assert said.code == 2
    assert "key.yaml: line 1: strateggy: unknown key, did you mean strategy?" in said.line
    assert not (state_dir / "cluster.json").exists()
    assert list((state_dir.parent / "run").iterdir()) == []


@pytest.mark.usefixtures("state_dir")
def test_an_unknown_strategy_lists_the_known() -> None:
    said = run_command("pliant", "server", "--strategy", "tarot")
    assert said.code == 2
    assert "'tarot' is not known; known are: " in said.line
    assert " equipartition, " in said.line


@pytest.mark.usefixtures("state_dir")
def test_wrong_usage() -> None:
    for words in (
        "jobsub",
        "jobsub --prefer many true",
        "jobsub --time never true",
        "jobdel",
        "jobdel x",
        "jobctl frob 1",
        "jobctl resize 1 -2",
        "pliant",
        "pliant frob",
        "pliant up --nodes none",
        "pliant nodectl --frob",
        "pliant nodectl --slots 0",
    ):
        said = run_command(*words.split())
        assert said.code == 2, f"{words}: {said}"
        assert said.err, words


# -------------------------------------------------------------------- with one


def jobsub(folder: Path, *words: str) -> Said:
    said = run_command("jobsub", *words, cwd=folder)
    assert said.out == "", "nothing must be acknowledged"
    return said


@pytest.mark.usefixtures("cluster")
def test_programs_that_cannot_run(folder: Path) -> None:
    expected = {
        "./missing": "no such file",
        "no-such-program": "is not in PATH",
        "./plain": "is not executable; chmod +x it, or name its interpreter",
        "plain": "write ./plain",
        "./": "is not a file",
        "": "its name is empty",
    }
    for program, text in expected.items():
        said = jobsub(folder, program)
        assert said.code == (1 if program else 2), said
        assert said.line.startswith("jobsub: program: ")
        assert text in said.line


@pytest.mark.usefixtures("cluster")
def test_folders_and_files_that_are_not_there(folder: Path) -> None:
    expected = {
        ("--chdir", "nowhere"): "chdir: ",
        ("--chdir", "plain"): "is not a directory",
        ("--input", "nothing"): "input: ",
        ("--output", "nowhere/out"): "output: ",
        ("--error", "nowhere/err"): "error: ",
        ("--output", "."): "is a directory",
    }
    for option, text in expected.items():
        said = jobsub(folder, *option, "true")
        assert (said.code, text in said.line) == (1, True), said


@pytest.mark.usefixtures("cluster")
def test_a_script_whose_interpreter_is_missing(folder: Path) -> None:
    script = folder / "run.sh"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    said = jobsub(folder, "run.sh")
    assert said.code == 1
    assert "its interpreter /no/such/interpreter does not exist" in said.line


@pytest.mark.usefixtures("cluster")
def test_sizes_that_the_grammar_refuses(folder: Path) -> None:
    for sizes in ("0", "-1", "", "5-2", "1-4:pow3", "{1,a}"):
        said = jobsub(folder, "-n", sizes, "true")
        assert said.code == 2, said
        assert said.line.startswith(f"jobsub: sizes '{sizes}': ")
    said = jobsub(folder, "-n", "1-4", "--prefer", "9", "true")
    assert (said.code, "9" in said.line) == (2, True)


def test_sizes_that_can_never_be_are_not_queued(cluster: Cluster, folder: Path) -> None:
    for sizes in ("5", "5-8", "{8,16}"):
        said = jobsub(folder, "-n", sizes, "true")
        assert said.code == 1, said
        assert (
            said.line
            == f"jobsub: sizes {sizes} can never be satisfied: the cluster has 4 processors"
        )
    assert [job for job in cluster.client.jobs() if job.sizes in ("5", "5-8")] == []


def test_other_requests_that_can_never_be_met_are_not_queued(
    cluster: Cluster, folder: Path
) -> None:
    expected = {
        ("--mem-per-cpu", "512T"): "512T memory",
        ("--gpus", "3"): "3 gpu",
        ("--constraint", "warp"): "constraint warp",
        ("--nodelist", "n9"): "nodelist n9",
        ("--exclude", "n[1-2]"): "exclude n[1-2]",
        ("--resource", "license=1"): "resource: ",
        ("--dependency", "afterok:777"): "dependency: there is no job 777",
        ("--array", "1-9", "--dependency", "afterok:777_3"): "dependency: there is no job 777_3",
    }
    for options, named in expected.items():
        said = jobsub(folder, *options, "--name", "impossible", "true")
        assert (said.code, named in said.line) == (1, True), said
    assert cluster.client.jobs(names=["impossible"], ended=True) == []


@pytest.mark.usefixtures("cluster")
def test_unknown_jobs() -> None:
    for words in (
        "jobstat 777",
        "jobdel 777",
        "jobctl why 777",
        "jobctl hold 777",
        "jobctl resize 777 2",
    ):
        said = run_command(*words.split())
        assert said.code == 1, said
        assert "there is no job 777" in said.line


def test_jobdel_cancels_the_known_and_names_the_unknown(cluster: Cluster) -> None:
    number = cluster.client.submit("true", hold=True)
    said = run_command("jobdel", "777", str(number))
    assert (said.code, said.line) == (1, "jobdel: there is no job 777")
    assert cluster.client.job(number).state == "CANCELLED"
    again = run_command("jobdel", str(number))
    assert (again.code, "already ended" in again.line) == (1, True), again


def test_resizes_that_cannot_be(cluster: Cluster) -> None:
    number = str(cluster.client.submit("true", sizes="1-4", hold=True))
    said = run_command("jobctl", "resize", number, "2")
    assert (said.code, "only RUNNING jobs" in said.line) == (1, True)
    said = run_command("jobctl", "resize", number, "2", "--release", "n9")
    assert (said.code, "there is no node n9" in said.line) == (1, True)
    cluster.client.cancel(int(number))


@pytest.mark.case(13)
def test_a_second_server_is_refused_at_once(cluster: Cluster) -> None:
    owner = cluster.daemon("server").pid
    said = run_command("pliant", "server")
    assert said.code == 1
    assert f"another server owns {cluster.state} (process {owner})" in said.line
    assert cluster.client.nodes()
    other = run_command("pliant", "server", "--state-dir", os.fspath(cluster.state))
    assert (other.code, f"process {owner}" in other.line) == (1, True)


def test_a_second_controller_is_refused_at_once(cluster: Cluster) -> None:
    owner = cluster.daemon("node-n1").pid
    said = run_command("pliant", "nodectl", "--name", "n1")
    assert said.code == 1
    assert f"node n1 has a controller already: process {owner}" in said.line
    assert cluster.daemon("node-n1").pid == owner
    assert [node.state for node in cluster.client.nodes()] == ["UP", "UP"]


@pytest.mark.usefixtures("cluster")
def test_another_shape_is_refused_while_it_runs() -> None:
    said = run_command("pliant", "up", "--detach", "--nodes", "3")
    assert said.code == 1
    assert "take it down first" in said.line
