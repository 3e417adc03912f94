from __future__ import annotations

import pytest

from pliant.client.client_errors import SubmitError
from pliant.client.submission.export_option import PLAIN_PATH, select_environment
from pliant.nodectl.shim.steps.launch_variables import AGENT, launch_variables

MINE = {"HOME": "/home/ada", "PATH": "/opt/bin", "A": "1", "B": "2", "ODD": "x\udcff"}


def test_all_is_the_default() -> None:
    assert select_environment([], MINE) == MINE
    assert select_environment(["ALL"], MINE) == MINE


def test_none_leaves_what_every_job_has() -> None:
    assert select_environment(["NONE"], MINE) == {"HOME": "/home/ada", "PATH": PLAIN_PATH}


def test_a_job_does_not_get_the_hosts_of_the_job_that_submits_it() -> None:
    job = MINE | {"PLIANT_JOB": "7", "PLIANT_NODE_LIST": "/worlds/7.1/nodes"}
    hosts = {
        "HYDRA_HOST_FILE": "/worlds/7.1/nodes",
        "OMPI_MCA_orte_default_hostfile": "/worlds/7.1/hosts",
        "PRTE_MCA_prte_default_hostfile": "/worlds/7.1/hosts",
    }
    script = job | hosts | launch_variables(job, f"/opt/bin/{AGENT}")
    assert script["I_MPI_HYDRA_BOOTSTRAP"] == "ssh"
    assert select_environment([], script) == job
    assert select_environment([], job | {"HYDRA_LAUNCHER": "fork"}) == job
    named = select_environment(["HYDRA_HOST_FILE"], script)
    assert named["HYDRA_HOST_FILE"] == "/worlds/7.1/nodes"


def test_a_job_gets_the_launcher_that_its_submitter_has_chosen() -> None:
    job = MINE | {"PLIANT_JOB": "7", "PLIANT_NODE_LIST": "/worlds/7.1/nodes"}
    mine = {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": "my-ssh", "HYDRA_HOST_FILE": "/mine"}
    assert select_environment([], job | mine) == job | mine
    assert select_environment([], MINE | {"HYDRA_LAUNCHER": "fork"})["HYDRA_LAUNCHER"] == "fork"


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
