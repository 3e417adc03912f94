"""Scripts that were written for another system: lines ``#SBATCH``, ``srun``, variables of Slurm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile

from pliant.client.client_errors import UsageError
from pliant.client.terminal.output import Parser, print_error

#: Lines that options of other systems are written in, and the names of these systems.
_SYSTEMS = {"#SBATCH": "Slurm", "#PBS": "PBS", "#BSUB": "LSF"}
#: Maximum number of lines that an error names. Most scripts have fewer, so users can change all of
#: them at once.
_MOST_LINES = 12
#: Lines that look like ``#JOB -n 4``, but are comments.
_NEAR_MISS = re.compile(r"#[ \t]*JOB[ \t]*[:=]?[ \t]*-", re.IGNORECASE)
_SRUN = re.compile(r"(?m)^[ \t]*srun[ \t]")
_CODE = re.compile(r"(?m)^[ \t]*(?!#)\S.*$")
_VARIABLE = re.compile(r"\$\{?(SLURM_[A-Z_]+)")

#: Variables of Slurm, and those that a job has instead.
_VARIABLES: Mapping[str, str] = {
    "SLURM_JOB_ID": "PLIANT_JOB",
    "SLURM_JOBID": "PLIANT_JOB",
    "SLURM_JOB_NUM_NODES": "PLIANT_NODES",
    "SLURM_NNODES": "PLIANT_NODES",
    "SLURM_JOB_NODELIST": "PLIANT_NODE_LIST, a file",
    "SLURM_NODELIST": "PLIANT_NODE_LIST, a file",
    "SLURM_ARRAY_TASK_ID": "PLIANT_ARRAY_TASK",
    "SLURM_ARRAY_JOB_ID": "PLIANT_ARRAY_JOB",
}

#: Options of Slurm that exist here, but mean something else.
_DIFFERENT: Mapping[str, str] = {
    "--gpus": "--gpus is the number for each process",
    "--gres": "--gres is for each process, not for each node",
    "--nodelist": "--nodelist: only these nodes, and not necessarily all",
    "-w": "-w: only these nodes, and not necessarily all",
}


def refuse_other_directives(text: str, path: str, parser: Parser) -> None:
    """Refuse a script with directives of another system, because they would be ignored.

    Args:
        text: the script, which has no ``#JOB`` lines.
        path: its path, for the error.
        parser: the parser of the command, which knows its options.

    Raises:
        UsageError: the script has such lines; names the first ones and what to write instead.
    """
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        words = stripped.split()
        if words and words[0] in _SYSTEMS:
            found.append((number, words))
    if not found:
        return
    mark = found[0][1][0]
    shown = [
        f"{path}:{number}: {' '.join(words)}{_translation(words, parser)}"
        for number, words in found[:_MOST_LINES]
    ]
    if len(found) > _MOST_LINES:
        shown.append(f"and {len(found) - _MOST_LINES} more")
    raise UsageError(
        f"{path}: lines `{mark}` of {_SYSTEMS[mark]} are not read, so the job would not get what "
        "they ask for\n"
        + "\n".join(shown)
        + "\nwrite them as #JOB lines, as in #JOB -n 4 --time 2h (see `bring a script over` in "
        "docs/slurm.md), or submit the script without them: --ignore-other-directives"
    )


def _translation(words: list[str], parser: Parser) -> str:
    """Return the replacement for the first option of an ``#SBATCH`` line, as a text in parentheses.

    Return an empty text if there is no option, or no replacement is known.
    """
    from pliant.client.slurm_options import SUBMISSION

    if words[0] != "#SBATCH" or len(words) < 2:
        return ""
    option = words[1].partition("=")[0]
    if not option.startswith("--"):
        option = option[:2]
    if option in _DIFFERENT:
        return f" ({_DIFFERENT[option]})"
    if option in parser._option_string_actions:  # argparse has no public list of options
        return f" ({option} is the same)"
    return f" ({SUBMISSION[option]})" if option in SUBMISSION else ""


def warn_of_useless_lines(text: str, path: str, prog: str, *, for_both: bool) -> None:
    """Warn of lines in a script that have no effect here.

    Args:
        text: the script.
        path: its path, for the warnings.
        prog: the command that warns.
        for_both: whether the script has both ``#JOB`` lines and lines of another system. In such
            a script, calls of ``srun`` and variables of Slurm cause no warning.
    """
    lines = [line.strip() for line in text.splitlines()]
    head = list(takewhile(lambda line: not line or line.startswith("#"), lines))
    for number, line in enumerate(head, start=1):
        if line.split(maxsplit=1)[:1] != ["#JOB"] and _NEAR_MISS.match(line):
            print_error(prog, f"{path}:{number}: {line}: is a comment; write `#JOB -...`")
            break
    for number, line in enumerate(lines[len(head) :], start=len(head) + 1):
        if line.startswith("#JOB -"):
            print_error(
                prog,
                f"{path}:{number}: {line}: is not read, because line {len(head) + 1} is a command; "
                "move it before the first command",
            )
            break
    if for_both:
        return
    if _SRUN.search(text):
        print_error(prog, f"{path}: `srun` does not start processes; use `pliant run`")
    if names := list(dict.fromkeys(_VARIABLE.findall("\n".join(_CODE.findall(text))))):
        name = names[0]
        instead = f"; use {_VARIABLES[name]}" if name in _VARIABLES else ""
        others = f" (also {', '.join(names[1:])})" if names[1:] else ""
        print_error(prog, f"{path}: the variable {name} is not set{instead}{others}")


def has_other_directives(text: str) -> bool:
    """Return whether a script has directives of another system, such as ``#SBATCH``."""
    return any(f"\n{mark} " in f"\n{text}" for mark in _SYSTEMS)
