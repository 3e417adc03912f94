"""Build the job of a ``submit`` request from the user's options, and check it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from pliant.client.client_errors import SubmitError, UsageError
from pliant.client.script_text import check_conditions, program_of
from pliant.core.support.input_limits import MAX_ARGUMENT_BYTES

#: Bytes that the controller's own variables may need, of the limit of all arguments.
_RESERVED_BYTES = 16 * 1024

_INTERPRETER = re.compile(r"(python|pypy)[0-9.]*|(ba|da|k|z)?sh|perl|ruby|julia")
#: Options of interpreters that take a value.
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs", "-o", "+o"})
#: ``-m MODULE``, also behind other letters.
_MODULE = re.compile(r"-[A-Za-z]*?m(.*)")
#: Modules that run a program which follows.
_RUNNERS = frozenset({"mpi4py", "cProfile", "trace"})

#: A number without a unit.
_BARE = re.compile(r"\d+(\.\d+)?", re.ASCII)

TYPES = ("mpi", "uni", "script")
OPEN_MODES = ("append", "truncate")
GROW_IF = ("gain", "always")
BIND = ("rank", "node", "none")


def check_sizes(text: str, prefer: int | None) -> None:
    """Check sizes and the preferred size against the size grammar.

    Raises:
        UsageError: what is wrong with it, and how to write it.
    """
    if text.isascii() and text.isdigit() and 0 < len(text) < 6 and int(text) > 0 and prefer is None:
        return  # the usual case needs no grammar
    from pliant.core.values.sizes import SizesError, parse_sizes

    try:
        parse_sizes(text, prefer)
    except SizesError as error:
        raise UsageError(str(error)) from None


def check_speedup(text: str) -> str:
    """Check a speedup model, and return it.

    Raises:
        UsageError: what is wrong with it, and how to write it.
    """
    if text != "linear":  # the usual case needs no grammar
        from pliant.core.values.speedup import SpeedupError, parse_speedup

        try:
            parse_speedup(text)
        except SpeedupError as error:
            raise UsageError(str(error)) from None
    return text


def check_resources(texts: Sequence[str]) -> list[str]:
    """Check the named resources that a job needs; return them as the server expects them.

    Raises:
        UsageError: what is wrong with one, and how to write it.
    """
    if not texts:
        return []  # the usual case imports nothing
    from pliant.core.values.resources import parse_needs

    try:
        return [str(need) for need in parse_needs(texts)]
    except ValueError as error:
        raise UsageError(f"resource: {error}") from None


def find_program(word: str, search_path: str, directory: str) -> str:
    """Return the absolute path of a program, found as by a shell, but scripts also without ``./``.

    Raises:
        UsageError: its name is empty.
        SubmitError: there is none, or it cannot be executed.
    """
    if not word:
        raise UsageError("program: its name is empty; name the program to run")
    if "/" not in word:
        for folder in search_path.split(":"):
            path = os.path.join(directory, folder or ".", word)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return os.path.normpath(path)
        if not (word.endswith(".sh") and os.path.isfile(os.path.join(directory, word))):
            here = os.path.exists(os.path.join(directory, word))
            remedy = f"write ./{word}" if here else "check its name, or give its path"
            raise SubmitError("program", f"{word!r} is not in PATH ({search_path})", remedy)
    return os.path.join(directory, word)


def check_program(path: str, *, script: bool) -> list[str]:
    """Return the command line that executes a program; a script need not be executable.

    Raises:
        SubmitError: it is missing, not a file, or cannot be executed.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise SubmitError("program", f"{path}: {_why(error)}", "check its name") from None
    if not stat.S_ISREG(mode):
        raise SubmitError("program", f"{path} is not a file", "name the program to run")
    _check_lines(path)
    interpreter = _shebang(path)
    if interpreter and not os.path.exists(interpreter[0]):
        raise SubmitError(
            "program",
            f"{path}: its interpreter {interpreter[0]} does not exist",
            "correct its first line",
        )
    if os.access(path, os.X_OK):
        if not script or interpreter or _is_elf(path):
            return [path]
    elif not script:
        raise SubmitError(
            "program",
            f"{path} is not executable",
            f"chmod +x it, or name its interpreter: jobsub python {os.path.basename(path)}",
        )
    if not os.access(path, os.R_OK):
        raise SubmitError("program", f"{path} cannot be read", f"chmod +r {path}")
    return [*(interpreter or ["/bin/sh"]), path]


def _check_lines(path: str) -> None:
    """Check that a script has no Windows line ends, with which no interpreter would be found."""
    try:
        with open(path, "rb") as script:
            line = script.readline(256)
    except OSError:
        return  # what cannot be read is said of elsewhere
    if line.startswith(b"#") and line.endswith(b"\r\n"):
        name = os.path.basename(path)
        raise SubmitError(
            "program",
            f"{path}: its lines end with CR LF, as in Windows",
            f"convert it: sed -i 's/\\r$//' {name}",
        )


def _shebang(path: str) -> list[str]:
    try:
        with open(path, "rb") as script:
            line = script.readline(256)
    except OSError:
        return []
    if not line.startswith(b"#!"):
        return []
    return os.fsdecode(line[2:].strip()).split(maxsplit=1)


def _is_elf(path: str) -> bool:
    try:
        with open(path, "rb") as program:
            return program.read(4) == b"\x7fELF"
    except OSError:
        return False


def check_directory(path: str) -> str:
    """Return the absolute path of the directory a job runs in.

    Raises:
        SubmitError: it is missing or cannot be entered.
    """
    absolute = os.path.abspath(path)
    if not os.path.isdir(absolute):
        what = "is not a directory" if os.path.exists(absolute) else "does not exist"
        raise SubmitError("chdir", f"{absolute} {what}", "make it, or name another")
    if not os.access(absolute, os.X_OK):
        raise SubmitError("chdir", f"{absolute} cannot be entered", "chmod +x it, or name another")
    return absolute


def check_output(field: str, path: str, directory: str) -> str:
    """Return the absolute path of an output file; its directory must exist and be writable.

    Raises:
        SubmitError: it could not be written.
    """
    absolute = os.path.join(directory, path)
    folder = os.path.dirname(absolute)
    if os.path.isdir(absolute) or path.endswith("/"):
        raise SubmitError(field, f"{absolute} is a directory", "name a file, as in out-%j.txt")
    if "%" in folder:
        return absolute  # the server knows it when it fills it in
    if not os.path.isdir(folder):
        raise SubmitError(
            field, f"the directory {folder} does not exist", f"mkdir -p {folder}, or name another"
        )
    if os.path.exists(absolute):
        if not os.access(absolute, os.W_OK):
            raise SubmitError(
                field, f"{absolute} cannot be written", f"chmod +w, or another {field}"
            )
    elif not os.access(folder, os.W_OK | os.X_OK):
        raise SubmitError(
            field, f"the directory {folder} cannot be written", f"name another with --{field}"
        )
    return absolute


def check_input(path: str, directory: str) -> str:
    """Return the absolute path of an input file; it must exist and be readable.

    Raises:
        SubmitError: it is not.
    """
    absolute = os.path.join(directory, path)
    if "%" in absolute and not os.path.exists(absolute):
        return absolute
    if os.path.isdir(absolute) or not os.access(absolute, os.R_OK):
        raise SubmitError("input", f"{absolute} cannot be read", "check its name and permissions")
    return absolute


def default_name(program: str, arguments: Sequence[str]) -> str:
    """Return the name for a job without one: that of the program or script that it runs.

    If an interpreter runs, the script or module among its arguments gives the name.
    """
    name = os.path.basename(program)
    if not _INTERPRETER.fullmatch(name):
        return name
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return os.path.basename(word) or name
        elif word.startswith("--"):
            continue
        elif name.startswith("py") and (module := _MODULE.fullmatch(word)):
            found = module[1] or next(words, "")
            if found not in _RUNNERS:
                return found or name
        elif word == "-" or word.endswith("c"):
            break
    return name


def check_limits(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Check that arguments and environment are not longer than the system allows.

    Raises:
        SubmitError: they are too long.
    """
    total = 0
    strings = [("argument", word) for word in argv]
    strings += [("environment", f"{name}={value}") for name, value in env.items()]
    for field, text in strings:
        size = len(os.fsencode(text)) + 1
        total += size + 8  # and a pointer to it
        if "\0" in text:
            raise SubmitError(field, f"{text[:40]!r} holds a NUL character", "leave it out")
        if size > MAX_ARGUMENT_BYTES:
            raise SubmitError(
                field,
                f"{text[:40]!r}... has {size} bytes, the system takes {MAX_ARGUMENT_BYTES}",
                "put it into a file",
            )
    limit = os.sysconf("SC_ARG_MAX") - _RESERVED_BYTES
    if total > limit:
        raise SubmitError(
            "argument",
            f"arguments and environment have {total} bytes, the system takes {limit}",
            "put them into a file, or export less (--export)",
        )


def check_policy(text: str) -> str:
    """Return the policy of ``--when-cut-off`` with its time in seconds.

    A time may have units; a bare number is in seconds.

    Raises:
        UsageError: it is no policy.
    """
    if text == "keep":
        return text  # the usual case imports nothing
    from pliant.client.terminal.durations import parse_span
    from pliant.core.values.lost_contact_policy import isolation_policy, parse_isolation_policy

    name, equals, time = text.partition("=")
    bare = not equals or _BARE.fullmatch(time) or time != time.strip()
    try:
        policy = text if bare else f"{name}={parse_span(time):.15g}"
        return isolation_policy(parse_isolation_policy(policy))
    except ValueError:
        raise UsageError(
            f"when-cut-off: {text!r} is no policy; write keep, or stop-after=TIME, ten years at "
            "most, as in stop-after=30 (seconds), stop-after=5m or stop-after=1h30m"
        ) from None


def current_umask() -> int:
    """Return the umask of this process without changing it, as other threads share it."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022


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
    dependency: str = "",
    signal: str = "",
    comment: str = "",
    script: str | None = None,
) -> dict[str, Any]:
    """Check the options of a job, and return the job in the form of a ``submit`` request.

    With the text of a ``script``, ``argv`` are its arguments.

    Raises:
        UsageError: a text is not in its grammar, or a choice is unknown.
        SubmitError: a check failed; names the field and the remedy.
    """
    check_conditions(dependency, signal, time_limit_s)
    argv, type, name = program_of(argv, type, name, script)
    check_sizes(sizes, prefer)
    bound = _check_choices(open_mode, grow_if, bind)
    cwd = check_directory(os.path.join(here := os.getcwd(), chdir or "."))
    environment = dict(os.environ if env is None else env)
    program = find_program(argv[0], environment.get("PATH", os.defpath), here)
    kind = type or ("script" if program.endswith(".sh") else "mpi")
    words = [*check_program(program, script=kind == "script"), *argv[1:]]
    check_limits(words, environment)
    return {
        "name": name or default_name(program, argv[1:]),
        "argv": words,
        "env": environment,
        "cwd": cwd,
        "type": kind,
        "sizes": sizes,
        "prefer": prefer,
        **_files(stdin, stdout, stderr, cwd),
        "open_mode": open_mode,
        "umask": current_umask(),
        "hold": hold,
        "requeue": requeue,
        "when_cut_off": check_policy(when_cut_off),
        "time_limit_s": time_limit_s,
        "estimate_s": estimate_s,
        **_contract(deadline_s, deadline_at, str(profit)),
        "speedup": check_speedup(speedup),
        "grow_if": grow_if,
        **_unless_default(priority=priority, account=account, resources=check_resources(resources)),
        **_unless_default(dependency=dependency, signal=signal, comment=comment, bind=bound),
        **check_node_needs(mem_per_cpu, gpus, gres, constraint, nodelist, exclude),
    }


def _files(stdin: str, stdout: str, stderr: str, cwd: str) -> dict[str, str]:
    """Return the files of a job, after checking that they can be used."""
    return {
        "stdin": check_input(stdin, cwd) if stdin else "",
        "stdout": check_output("output", stdout or "pliant-%j.out", cwd),
        "stderr": check_output("error", stderr, cwd) if stderr else "",
    }


def _unless_default(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value; defaults are omitted for older servers' sake."""
    return {name: value for name, value in fields.items() if value}


def _check_choices(open_mode: str, grow_if: str | None, bind: str) -> str:
    """Check values from lists; return how ranks are bound, empty for the default."""
    _check_choice("open_mode", open_mode, OPEN_MODES)
    _check_choice("grow_if", grow_if, (None, *GROW_IF))
    _check_choice("bind", bind, BIND)
    return "" if bind == "rank" else bind


def _check_choice(name: str, value: str | None, choices: Sequence[str | None]) -> None:
    if value not in choices:
        known = " or ".join(filter(None, choices))
        raise UsageError(f"{name}: {value!r} is unknown; write {known}")


def check_node_needs(
    mem_per_cpu: str | int,
    gpus: int,
    gres: Sequence[str],
    constraint: str,
    nodelist: str,
    exclude: str,
) -> dict[str, Any]:
    """Return the fields about what a job needs of its nodes; empty if it needs nothing of them.

    Raises:
        UsageError: a text is not in its grammar; the message names the option.
    """
    if not (mem_per_cpu or gpus or gres or constraint or nodelist or exclude):
        return {}  # the usual case imports nothing
    from pliant.core.values.constraint import Constraint
    from pliant.core.values.node_needs import GPU, parse_gres, parse_memory
    from pliant.core.values.node_ranges import parse_node_ranges

    option = "--gres"
    try:
        amounts = parse_gres(gres)
        if gpus:
            if GPU in amounts:
                raise ValueError(f"--gpus {gpus} asks for {GPU}, too; name them once")
            amounts[GPU] = gpus
        option = "--mem-per-cpu"
        memory = mem_per_cpu if isinstance(mem_per_cpu, int) else 0
        if mem_per_cpu and not memory:
            memory = parse_memory(str(mem_per_cpu))
        option = "--constraint"
        if constraint:
            Constraint(constraint)
        option = "--nodelist"
        if nodelist:
            parse_node_ranges(nodelist)
        option = "--exclude"
        if exclude:
            parse_node_ranges(exclude)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    fields = {
        "memory_bytes": memory,
        "gres": amounts,
        "constraint": constraint,
        "nodelist": nodelist,
        "exclude": exclude,
    }
    # Not sent if empty, so that older servers take the job.
    return {name: value for name, value in fields.items() if value}


def _contract(deadline_s: float | None, deadline_at: float | None, profit: str) -> dict[str, Any]:
    """Return the fields of a deadline and its profit; empty without a deadline."""
    if deadline_s is None and deadline_at is None:
        if profit:
            raise UsageError(f"--profit {profit} needs a deadline: add --deadline, as in 2h")
        return {}
    from pliant.core.values.profit_contract import parse_profit

    try:
        parse_profit(profit, 1.0)
    except ValueError as error:
        raise UsageError(f"--profit {error}") from None
    fields = {"deadline_s": deadline_s, "deadline_at": deadline_at, "profit": profit}
    return {name: value for name, value in fields.items() if value not in {None, ""}}


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
