"""Advice for users of Slurm who type an option that a command does not have."""

from __future__ import annotations

from collections.abc import Mapping

_NO_NODES = "jobs ask for processors and not for nodes: use -n, as in -n 8"
_BID = "use --bid with the run folders of the servers"
_NO_PARTITIONS = "there are no partitions: leave it out"

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
    "--mail-type": "use --notify-on start,end,fail,resize,limit or all, and tasks for ARRAY_TASKS",
    "--mail-user": "use --notify",
    "--profile": "use --record-load 1s",
    "--acctg-freq": "use --record-load 1s",
    "--reservation": "there are no reservations: leave it out",
    "--get-user-env": "use --export ALL",
    "-M": _BID,
    "--clusters": _BID,
    "-S": "it has no equivalent: leave it out",
    "--core-spec": "it has no equivalent: leave it out",
    "--thread-spec": "it has no equivalent: leave it out",
    "-k": "it has no equivalent; --requeue starts a job again after the loss of a node",
    "--no-kill": "it has no equivalent; --requeue starts a job again after the loss of a node",
    "--switches": "it has no equivalent: leave it out",
    "-O": "it has no equivalent: a processor runs one process",
    "--overcommit": "it has no equivalent: a processor runs one process",
    "-s": "it has no equivalent: leave it out",
    "--oversubscribe": "it has no equivalent: leave it out",
    "--uid": "it has no equivalent: submit the job as that user",
    "--gid": "it has no equivalent: submit the job with that group (newgrp)",
    "-Q": "it has no equivalent; --parsable prints nothing but the number",
    "--quiet": "it has no equivalent; --parsable prints nothing but the number",
    "-v": "it has no equivalent: leave it out",
    "--verbose": "it has no equivalent: leave it out",
    "-V": "use --version",
    "--tasks": "use -n",
    "--pty": "use `pliant run --pty PROGRAM`",
    "--mincpus": _NO_NODES,
    "--distribution": "it has no equivalent: the strategy places the processes",
    "-m": "it has no equivalent: the strategy places the processes",
    "--contiguous": "it has no equivalent: the strategy places the processes",
    "--tmp": "it has no equivalent: leave it out",
    "--time-min": "it has no equivalent; --estimate states the expected time",
    "--gpus-per-socket": "use --gpus, the number for each process",
    "--ntasks-per-core": "it has no equivalent: a processor runs one process",
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

#: For ``jobacct``: options of ``sacct``.
ACCOUNTING: Mapping[str, str] = {
    "-S": "use --since",
    "--starttime": "use --since",
    "-E": "use --until",
    "--endtime": "use --until",
    "-j": "name jobs by their numbers: jobacct 17 18",
    "--jobs": "name jobs by their numbers: jobacct 17 18",
    "-s": "use --state",
    "--uid": "use --user",
    "--users": "use --user",
    "--allusers": "use --all-users",
    "-X": "leave it out: a line is a job, and --steps lists steps",
    "--allocations": "leave it out: a line is a job, and --steps lists steps",
    "-o": "columns cannot be chosen; --csv and --json have all",
    "--format": "columns cannot be chosen; --csv and --json have all",
    "-p": "use --csv",
    "--parsable": "use --csv",
    "-P": "use --csv",
    "--parsable2": "use --csv",
    "--delimiter": "use --csv; it has commas",
    "--noheader": "it has no equivalent; --json has no header",
    "-l": "use --json",
    "--long": "use --json",
    "-A": "use --sum account",
    "--accounts": "use --sum account",
    "-r": _NO_PARTITIONS,
    "--partition": _NO_PARTITIONS,
    "-N": "it has no equivalent: leave it out",
    "--nodelist": "it has no equivalent: leave it out",
}

#: For ``nodestat``: options of ``sinfo``.
NODES: Mapping[str, str] = {
    "-n": "name nodes: nodestat n1 n[02-16]",
    "--nodes": "name nodes: nodestat n1 n[02-16]",
    "-N": "leave it out: a line is a node",
    "--Node": "leave it out: a line is a node",
    "-t": "it has no equivalent; --json has the states",
    "--states": "it has no equivalent; --json has the states",
    "-o": "columns cannot be chosen; --json has all",
    "-O": "columns cannot be chosen; --json has all",
    "--format": "columns cannot be chosen; --json has all",
    "--Format": "columns cannot be chosen; --json has all",
    "-p": _NO_PARTITIONS,
    "--partition": _NO_PARTITIONS,
    "-s": _NO_PARTITIONS,
    "--summarize": _NO_PARTITIONS,
    "-R": "leave it out: the list has the reasons",
    "--list-reasons": "leave it out: the list has the reasons",
    "-i": "use --watch --every SECONDS",
    "--iterate": "use --watch --every SECONDS",
    "--noheader": "it has no equivalent; --json has no header",
    "-v": "use --long",
    "--verbose": "use --long",
}

#: By the command whose parser does not know the option.
HINTS: Mapping[str, Mapping[str, str]] = {
    "jobsub": SUBMISSION,
    "jobstat": LISTING,
    "jobdel": CANCELLING,
    "jobacct": ACCOUNTING,
    "nodestat": NODES,
}
