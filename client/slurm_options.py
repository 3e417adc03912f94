"""Advice for users of Slurm who type an option that a command does not have."""

from __future__ import annotations

from collections.abc import Mapping

_NO_NODES = "a job asks for processors: -n 8; each of its processes may need memory and devices"

#: For ``jobsub``: options of ``sbatch`` and ``srun``.
SUBMISSION: Mapping[str, str] = {
    "--ntasks": "use -n",
    "--job-name": "use --name",
    "-J": "use --name",
    "-t": "use --time",
    "-D": "use --chdir",
    "-H": "use --hold",
    "-W": "use --wait",
    "-A": "use --account",
    "-d": "use --dependency",
    "-b": "use --begin",
    "-N": _NO_NODES,
    "--nodes": _NO_NODES,
    "--ntasks-per-node": _NO_NODES,
    "-c": "use -n for processors; a process has one processor",
    "--cpus-per-task": "use -n for processors; a process has one processor",
    "--mem": "use --mem-per-cpu",
    "--mem-per-gpu": "use --mem-per-cpu",
    "-G": "use --gpus, the number for each process",
    "--gpus-per-node": "use --gpus, the number for each process",
    "-L": "use --resource NAME=N",
    "--licenses": "use --resource NAME=N",
    "-p": "there are no partitions: leave it out, or use --constraint",
    "--partition": "there are no partitions: leave it out, or use --constraint",
    "-q": "there are no QOS: leave it out, or use --priority",
    "--qos": "there are no QOS: leave it out, or use --priority",
    "--nice": "use --priority with a negative number",
    "--exclusive": "nodes are not given to one job alone: leave it out",
    "--cpu-bind": "use --bind",
    "--mail-type": "use --notify-on start,end,fail,resize,limit or all",
    "--mail-user": "use --notify",
    "--reservation": "there are no reservations: leave it out",
    "--get-user-env": "use --export ALL",
}

#: For ``jobstat``: options of ``squeue``.
LISTING: Mapping[str, str] = {
    "-j": "name jobs by their numbers: jobstat 17 18",
    "--jobs": "name jobs by their numbers: jobstat 17 18",
    "--users": "use --user",
    "--states": "use --state",
    "-o": "use -O with names of columns",
    "--noheader": "use --no-header",
    "--long": "use --wide",
    "-i": "use --watch --every SECONDS",
    "--iterate": "use --watch --every SECONDS",
    "-p": "there are no partitions",
    "--partition": "there are no partitions",
}

#: For ``jobdel``: options of ``scancel``.
CANCELLING: Mapping[str, str] = {
    "--jobname": "use --name",
    "-s": "use jobctl signal ID SIGNAL",
    "--signal": "use jobctl signal ID SIGNAL",
    "-p": "there are no partitions",
}
