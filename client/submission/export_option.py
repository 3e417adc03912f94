"""The environment of a job: the variables that ``--export`` selects from the submitter's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from pliant.client.client_errors import SubmitError

#: Variables of every job, whatever is exported.
BASICS = ("HOME", "LOGNAME", "SHELL", "USER")
#: PATH of a job that does not get its submitter's.
PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"

#: Variables with which Pliant makes launchers of MPI libraries use the hosts of a script's job, and
#: the variables that mean nothing without them. See `pliant.nodectl.shim.steps.launch_variables`.
_HOST_FILES = (
    "HYDRA_HOST_FILE",
    "I_MPI_HYDRA_HOST_FILE",
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
)
_AGENTS = {
    "HYDRA_LAUNCHER_EXEC": "HYDRA_LAUNCHER",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC": "I_MPI_HYDRA_BOOTSTRAP",
    "OMPI_MCA_plm_rsh_agent": "OMPI_MCA_plm_rsh_no_tree_spawn",
    "PRTE_MCA_plm_ssh_agent": "PRTE_MCA_plm_ssh_no_tree_spawn",
}
_AGENT = "pliant-launch-agent"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
#: A comma separates entries only if a name follows, so that a value may contain commas.
_COMMA = re.compile(r",(?=[A-Za-z_][A-Za-z0-9_]*(?:[=,]|$))", re.ASCII)


def select_environment(
    choices: Iterable[str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment variables that the values of ``--export`` select.

    ``ALL`` (the default) is the whole environment, ``NONE`` none of it, ``NAME`` only the named
    ones; ``NAME=VALUE`` sets one more. In a script, ``ALL`` leaves out the variables that make MPI
    launchers use the hosts of the script's job, because the new job has others.

    Raises:
        SubmitError: an entry is malformed, or names a variable that is not set.
    """
    entries = [entry for choice in choices for entry in _COMMA.split(choice) if entry]
    names = [entry for entry in entries if "=" not in entry and entry not in {"ALL", "NONE"}]
    if "ALL" in entries or not (names or "NONE" in entries):
        result = _without_hosts_of_job(environ)
    else:
        result = {name: environ[name] for name in BASICS if name in environ}
        result["PATH"] = PLAIN_PATH
        result |= {name: _value(name, environ) for name in names}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if equals:
            result[_checked(name)] = value
    return result


def _without_hosts_of_job(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables that name this job's hosts to MPI launchers.

    This job is the one in whose script the command runs. A variable stays if the script has set it
    to something else.
    """
    if "PLIANT_JOB" not in environ:
        return dict(environ)
    folder = os.path.dirname(environ.get("PLIANT_NODE_LIST", ""))
    dropped = {
        name for name in _HOST_FILES if folder and os.path.dirname(environ.get(name, "")) == folder
    }
    for name, companion in _AGENTS.items():
        if os.path.basename(environ.get(name, "")) == _AGENT:
            dropped |= {name, companion}
    if environ.get("HYDRA_LAUNCHER") == "fork":  # jobs on one node get it again
        dropped.add("HYDRA_LAUNCHER")
    return {name: value for name, value in environ.items() if name not in dropped}


def _value(name: str, environ: Mapping[str, str]) -> str:
    if _checked(name) not in environ:
        raise SubmitError(
            "export", f"the variable {name} is not set", f"set it, or write --export {name}=VALUE"
        )
    return environ[name]


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise SubmitError(
            "export", f"{name!r} is not the name of a variable", "write ALL, NONE, NAME, NAME=VALUE"
        )
    return name
