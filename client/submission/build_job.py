"""Build the job of a ``submit`` request from the user's options, and check it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pliant.client.submission.file_checks import (
    SCRIPT_SUFFIXES,
    check_directory,
    check_input,
    check_limits,
    check_output,
    check_program,
    current_directory,
    current_umask,
    default_name,
    find_program,
)
from pliant.client.submission.option_checks import (
    check_choices,
    check_contract,
    check_node_needs,
    check_policy,
    check_record_load,
    check_resources,
    check_sizes,
    check_speedup,
)
from pliant.client.submission.script_text import check_conditions, program_of

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any

#: The output file of a job that names none: of a single job, and of each task of an array.
_OUTPUT = ("pliant-%j.out", "pliant-%A_%a.out")


def build_job(  # noqa: PLR0913 - these are the fields of a job
    argv: Sequence[str],
    *,
    sizes: str = "1",
    prefer: int | None = None,
    type: str | None = None,
    name: str = "",
    stdin: str = "",
    stdout: str = "",
    stderr: str = "",
    open_mode: str = "truncate",
    record_load_s: float | None = None,
    chdir: str | None = None,
    env: Mapping[str, str] | None = None,
    hold: bool = False,
    requeue: bool | None = None,
    when_cut_off: str = "keep",
    time_limit_s: float | None = None,
    estimate_s: float | None = None,
    deadline_s: float | None = None,
    deadline_at: float | None = None,
    profit: str | float = "",
    speedup: str = "linear",
    grow_if: str | None = None,
    priority: int = 0,
    resources: Sequence[str] = (),
    mem_per_cpu: str | int = "",
    gpus: int = 0,
    gres: Sequence[str] = (),
    constraint: str = "",
    nodelist: str = "",
    exclude: str = "",
    account: str = "",
    bind: str = "rank",
    begin_s: float | None = None,
    begin_at: float | None = None,
    dependency: str = "",
    signal: str = "",
    comment: str = "",
    notify: str = "",
    notify_on: str = "",
    components: Sequence[int] = (),
    array: str = "",
    script: str | None = None,
) -> dict[str, Any]:
    """Check the options of a job, and return the job in the form of a ``submit`` request.

    With the text of a ``script``, ``argv`` has the arguments of the script.

    Raises:
        UsageError: the text of an option cannot be parsed, or a choice is unknown.
        SubmitError: a check failed; names the field and the remedy.
    """
    check_conditions(dependency, signal, time_limit_s, array)
    argv, type, name = program_of(argv, type, name, script)
    cwd = check_directory(os.path.join(current_directory(), chdir or "."))
    environment = dict(os.environ if env is None else env)
    program, kind, words = _command(argv, type, environment)
    return {
        "name": name or default_name(program, argv[1:]),
        "argv": words,
        "env": environment,
        "cwd": cwd,
        "type": kind,
        **_size(sizes, prefer, components),
        **_files(stdin, stdout or _OUTPUT[bool(array)], stderr, cwd, open_mode, record_load_s),
        "hold": hold,
        "requeue": requeue,
        "when_cut_off": check_policy(when_cut_off),
        "time_limit_s": time_limit_s,
        "estimate_s": estimate_s,
        **_unless_default(begin_s=begin_s, begin_at=begin_at, notify=notify, notify_on=notify_on),
        **check_contract(deadline_s, deadline_at, str(profit)),
        "speedup": check_speedup(speedup),
        "grow_if": grow_if,
        **_unless_default(priority=priority, account=account, resources=check_resources(resources)),
        **_unless_default(dependency=dependency, signal=signal, array=array),
        **_unless_default(comment=comment, bind=check_choices(open_mode, grow_if, bind)),
        **check_node_needs(mem_per_cpu, gpus, gres, constraint, nodelist, exclude),
    }


def _command(
    argv: Sequence[str], type: str | None, environment: dict[str, str]
) -> tuple[str, str, list[str]]:
    """Return the path of a program, the type of its job, and its command line.

    If ``type`` is None, the type is ``script`` for files with the suffix of a script, else ``mpi``.
    """
    program = find_program(argv[0], environment.get("PATH", os.defpath), os.getcwd())
    kind = type or ("script" if program.endswith(SCRIPT_SUFFIXES) else "mpi")
    words = [*check_program(program, script=kind == "script"), *argv[1:]]
    check_limits(words, environment)
    return program, kind, words


def _size(sizes: str, prefer: int | None, components: Sequence[int]) -> dict[str, Any]:
    """Return the fields of a job about its size.

    If ``components`` names the processors of each component, and ``sizes`` is the default, the
    size is the sum of these processors.
    """
    if components and sizes == "1":
        sizes = str(sum(components))
    check_sizes(sizes, prefer)
    return {"sizes": sizes, "prefer": prefer, **_unless_default(components=list(components))}


def _files(
    stdin: str, stdout: str, stderr: str, cwd: str, open_mode: str, record_load_s: float | None
) -> dict[str, Any]:
    """Return the files of a job and how they are opened, after checking that they can be used."""
    return {
        "stdin": check_input(stdin, cwd) if stdin else "",
        "stdout": check_output("output", stdout, cwd),
        "stderr": check_output("error", stderr, cwd) if stderr else "",
        "open_mode": open_mode,
        **check_record_load(record_load_s),
        "umask": current_umask(),
    }


def _unless_default(**fields: Any) -> dict[str, Any]:
    """Return the fields that are neither empty nor 0. Older servers do not know all fields."""
    return {name: value for name, value in fields.items() if value}
