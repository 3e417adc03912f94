"""The variables that name the launch agent to MPI launchers."""

from __future__ import annotations

from pliant.nodectl.shim.steps.launch_variables import launch_variables


def test_a_launcher_that_the_job_chooses_is_left_alone() -> None:
    added = launch_variables({"HYDRA_LAUNCHER": "slurm", "PLIANT_NODE_LIST": "/nodes"}, "/agent")
    assert not [name for name in added if name.startswith("HYDRA_")]
    assert added["I_MPI_HYDRA_HOST_FILE"] == "/nodes"
    assert added["OMPI_MCA_plm_rsh_agent"] == added["PRTE_MCA_plm_ssh_agent"] == "/agent"


def test_variables_of_the_job_take_precedence() -> None:
    added = launch_variables({"HYDRA_LAUNCHER_EXEC": "/mine"}, "/agent")
    assert added["HYDRA_LAUNCHER"] == "ssh"
    assert "HYDRA_LAUNCHER_EXEC" not in added
