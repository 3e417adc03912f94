"""Variables with which the launchers of other MPI libraries reach all nodes of a script's job.

The launchers start a daemon on each node with a program that they call like ``ssh``. The variables
name ``pliant-launch-agent`` to them, which starts the daemons through the shims of the job. The
shim sets them, not the controller: they name a program, which must not run as the user of the job
because another account has chosen it.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Mapping

#: The program that launchers call instead of ``ssh``.
AGENT = "pliant-launch-agent"


def agent_path() -> str:
    """Return the path of this installation's launch agent; empty if it is not installed."""
    path = os.path.join(sysconfig.get_path("scripts"), AGENT)
    return path if os.access(path, os.X_OK) else ""


def launch_variables(environment: Mapping[str, str], agent: str) -> dict[str, str]:
    """Return the variables to add to the environment of a script whose job has several nodes.

    Args:
        environment: the environment of the script. If it chooses the launcher of a library,
            nothing is added for this library.
        agent: the path of the launch agent.
    """
    nodes = environment.get("PLIANT_NODE_LIST", "")
    families = {
        "HYDRA_LAUNCHER": {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": agent},
        "I_MPI_HYDRA_BOOTSTRAP": {
            "I_MPI_HYDRA_BOOTSTRAP": "ssh",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": agent,
            "I_MPI_HYDRA_HOST_FILE": nodes,
        },
        # The agent works on the node of the script only, so one process starts all daemons.
        "OMPI_MCA_plm_rsh_agent": {
            "OMPI_MCA_plm_rsh_agent": agent,
            "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        },
        "PRTE_MCA_plm_ssh_agent": {
            "PRTE_MCA_plm_ssh_agent": agent,
            "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        },
    }
    added: dict[str, str] = {}
    for chosen, variables in families.items():
        if chosen not in environment:
            added |= {name: value for name, value in variables.items() if name not in environment}
    return added
