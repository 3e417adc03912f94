"""The rules of the house that hold for every file: who imports whom, banned calls, sizes."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from testkit import PARTS, ROOT, fresh_modules, part_files, source_files

#: The parts each part may import besides itself.
MAY_IMPORT = {
    "faults": set[str](),
    "core": set[str](),
    "strategies": {"core"},
    "charts": {"core"},
    "simulator": {"core", "strategies", "charts"},
    "protos": {"core"},
    "appkit": {"core", "protos", "faults"},
    "nodectl": {"core", "protos", "faults"},
    "client": {"core", "protos", "charts"},
    "server": {"core", "strategies", "protos", "faults"},
    "deploy": {"core", "protos", "client"},
    "examples": {"core", "strategies", "simulator", "protos", "appkit", "client"},
}

#: The order inside each part: packages and modules of its root folder. Each line may import the
#: lines above it, and nothing from its own line but itself. `__init__` may import all.
ORDER = {
    "core": """
        support
        values
        arrays
        model
        events commands
        state
        transitions
        handlers
        state_machine
        job_explanation
    """,
    "strategies": """
        interface
        multicluster nodes
        policies
        queue_order_option
        queueing equipartition start_forecast koala load_sharing profit registry steepest_ascent
        malleable_easy max_fit queueing_presets profit_lazy
    """,
    "charts": """
        colours drawing allocations_from_history usable_processors
        job_sizes_over_time output
        layout
        axes
        labels negotiation_marks
        processor_gantt legend
        timeline
        history_timeline
    """,
    "simulator": """
        confidence inputs
        run time_shared user_limit_and_share_options
        cli_options multicluster pictures what_if
        experiments report
        cli
    """,
    "protos": """
        codec_error daemons generate grpc_channel_options hmac_handshake
        mpich_variables_for_joined_worlds relay_server_rank sanitize_text staging versions
        address codec
        checkpoint_codec report_chunking identity interactive
        node_joining signed_orders
    """,
    "faults": """
        registry
        failpoints_variable
        failpoint_actions
        failpoint_calls
    """,
    "appkit": """
        appkit_errors clock json_lines loop_exit_check exit_without_finalize serialization
        loops joining mpi
        redistribution
        storage
        environment data
        coordinator kinds
        registered_objects
        registration performance checkpoint
        register_arrays resize
        safe_point_runtime
        job
        decorator
    """,
    "nodectl": """
        host lease_expiry step_record
        settings world_folder
        certified shim
        root_helper controller
        launcher daemon config_command staged_transfer
        __main__
    """,
    "deploy": """
        on_host unit_files manual_page
        planning
        wheelhouse
        rollout
        hosts_command wheels_command units_command man_command
        deploy_command
    """,
    "client": """
        client_errors slurm_options
        ssh
        site_settings
        node_join_as_root paths terminal node_joining
        server_socket step_socket submission
        connection
        sans_io_operations
        reconnecting staged_files
        cluster listing
        accounting forecasts
        api dashboard demo gantt commands login_agent metrics traces
        executor federation
        shell_completion resize_check run
    """,
    "server": """
        folder_locks shutdown support authentication
        checkpoints registry
        authorisation staging
        config database
        backup reload running_server_config
        config_command execution
        login_hosts notifications watch
        rpc user_requests
        node_joining
        listeners
        server
        daemon
        __main__
    """,
}

#: Parts that hold to the standard library.
PURE = ("faults", "core", "strategies", "charts", "simulator")

#: For its reports and pictures, and to read experiments, the simulator may use more.
MORE = {
    "charts/output/png": {"matplotlib"},
    "simulator/report": {"numpy"},
    "simulator/experiments/": {"yaml"},
    "simulator/pictures/": {"matplotlib"},
    "simulator/cli.py": {"matplotlib"},
}

#: Modules of the standard library through which the world, the clock or chance would come in.
IMPURE = {
    "asyncio",
    "concurrent",
    "logging",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
}

#: Third-party packages that a part never imports, not even late.
NEVER = {
    "protos": {"sqlalchemy", "alembic", "click", "rich", "mpi4py", "numpy"},
    "appkit": {"sqlalchemy", "alembic", "click", "rich", "structlog", "msgspec", "cryptography"},
    "nodectl": {"sqlalchemy", "alembic", "click", "mpi4py", "numpy"},
    "client": {"sqlalchemy", "alembic", "click", "mpi4py"},
    "server": {"click", "mpi4py"},
}

#: The only modules that may fork. They never load grpc and have one thread.
FORKING = (
    "nodectl/launcher",
    "nodectl/shim",
    "nodectl/root_helper",
    "simulator/experiments/running/worker",
)

MAX_FILES = 15
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80


def parse(path: Path, code: str | None = None) -> ast.Module:
    return ast.parse(path.read_bytes() if code is None else code, filename=str(path))


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules need to know of a file, each with its line."""

    imports: list[tuple[int, str]]
    """Absolute dotted names, late imports included."""
    banned_calls: list[tuple[int, str]]
    """Ways to fork an interpreter that may have threads and grpc in it, imports excluded."""
    functions: list[tuple[int, str, int]]
    """Names and numbers of lines."""


# Many rules look at the same files, and parsing all of them takes a second.
@cache
def facts(path: Path, code: str | None = None) -> Facts:
    relative = path.relative_to(ROOT)
    package = ["pliant", *relative.parent.parts]
    found = Facts([], [], [])
    for node in ast.walk(parse(path, code)):
        if isinstance(node, ast.Import):
            found.imports.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = [*base, *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                found.imports.append((node.lineno, ".".join([*source, alias.name])))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            found.functions.append((node.lineno, node.name, length))
        elif isinstance(node, ast.Attribute) and node.attr in {"fork", "forkpty"}:
            if isinstance(node.value, ast.Name) and node.value.id == "os":
                found.banned_calls.append((node.lineno, f"os.{node.attr}"))
        elif isinstance(node, ast.Attribute) and node.attr == "ProcessPoolExecutor":
            found.banned_calls.append((node.lineno, node.attr))
        elif isinstance(node, ast.keyword) and node.arg == "preexec_fn":
            found.banned_calls.append((node.value.lineno, "preexec_fn"))
    return found


def imports(path: Path, code: str | None = None) -> list[tuple[int, str]]:
    return facts(path, code).imports


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def may_fork(path: Path) -> bool:
    return path.relative_to(ROOT).as_posix().startswith(FORKING)


def test_every_part_has_its_rule() -> None:
    assert set(MAY_IMPORT) == set(PARTS)
    assert not (ROOT / "pliant").exists(), "a root folder `pliant` would shadow the namespace"


def test_imports_between_parts_go_down_only() -> None:
    faults = []
    for part in PARTS:
        for path in part_files(part):
            for line, name in imports(path):
                top, _, rest = name.partition(".")
                other = rest.partition(".")[0]
                allowed = MAY_IMPORT[part] | {part, "__version__"}
                if top == "pliant" and other not in allowed:
                    faults.append(f"{where(path, line)}: {part} may not import pliant.{other}")
                if top in PARTS:
                    faults.append(f"{where(path, line)}: write pliant.{name}, not {name}")
    assert faults == []


def order_of(part: str) -> dict[str, int]:
    """Return the line of each package and root module of a part in its order."""
    lines = ORDER[part].strip().splitlines()
    return {name: number for number, line in enumerate(lines) for name in line.split()}


@pytest.mark.parametrize("part", ORDER)
def test_every_package_has_its_place(part: str) -> None:
    stubs = ("_pb2", "_pb2_grpc")
    there = {
        path.relative_to(ROOT / part).parts[0].removesuffix(".py") for path in part_files(part)
    }
    named = [name for line in ORDER[part].splitlines() for name in line.split()]
    assert len(named) == len(set(named))
    assert {name for name in there if not name.endswith(stubs)} - {"__init__"} == set(named)


@pytest.mark.parametrize("part", ORDER)
def test_the_table_for_contributors_is_up_to_date(part: str) -> None:
    """The table has all packages of a part in their order, and files that exist to begin with."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith(f"| `{part}` |"))
    packages, first = (re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[3:5])
    assert packages == [name for name in order_of(part) if (ROOT / part / name).is_dir()]
    assert [name for name in first if not (ROOT / part / name).is_file()] == []


@pytest.mark.parametrize("part", ORDER)
def test_imports_inside_a_part_go_down_only(part: str) -> None:
    order = order_of(part)
    faults = []
    for path in part_files(part):
        own = path.relative_to(ROOT / part).parts[0].removesuffix(".py")
        for line, name in imports(path):
            other = name.removeprefix(f"pliant.{part}.").partition(".")[0]
            if own not in order or other == own or not name.startswith(f"pliant.{part}."):
                continue
            if order.get(other, -1) >= order[own]:
                faults.append(f"{where(path, line)}: {part}/{own} may not import {name}")
    assert faults == []


def test_folders_stay_small() -> None:
    folders = Counter(
        path.parent
        for part in PARTS
        for path in part_files(part)
        if path.name != "__init__.py" and "_pb2" not in path.name
    )
    crowded = {str(folder): count for folder, count in folders.items() if count > MAX_FILES}
    assert crowded == {}


def test_pure_parts_import_the_standard_library_only() -> None:
    faults = []
    for part in PURE:
        for path in part_files(part):
            name_of_file = path.relative_to(ROOT).as_posix()
            more = (MORE[start] for start in MORE if name_of_file.startswith(start))
            allowed = sys.stdlib_module_names | {"pliant"} | set().union(*more)
            for line, name in imports(path):
                top = name.partition(".")[0]
                if top not in allowed:
                    faults.append(f"{where(path, line)}: {part} may not import {top}")
    assert faults == []


@pytest.mark.parametrize("part", ["core", "strategies"])
def test_the_domain_has_no_clock_no_chance_and_no_outside(part: str) -> None:
    faults = [
        f"{where(path, line)}: {part} may not import {name}"
        for path in part_files(part)
        for line, name in imports(path)
        if name.partition(".")[0] in IMPURE
    ]
    assert faults == []


def test_parts_keep_to_their_packages() -> None:
    faults = [
        f"{where(path, line)}: {part} never imports {name}"
        for part, banned in NEVER.items()
        for path in part_files(part)
        for line, name in imports(path)
        if name.partition(".")[0] in banned
    ]
    assert faults == []


def test_programs_and_shims_do_without_the_identity_of_the_cluster() -> None:
    faults = [
        f"{where(path, line)}: only daemons and administrators' commands import {name}"
        for path in [*part_files("appkit"), *filter(may_fork, part_files("nodectl"))]
        if "root_helper" not in path.parts  # which verifies signatures
        for line, name in imports(path)
        if f"{name}.".startswith(("pliant.protos.identity.", "cryptography."))
    ]
    assert faults == []


def test_processes_that_fork_load_neither_grpc_nor_threads() -> None:
    faults = [
        f"{where(path, line)}: a process that forks never imports {name}"
        for part in PARTS
        for path in filter(may_fork, part_files(part))
        for line, name in imports(path)
        if name.partition(".")[0] in {"grpc", "threading", "asyncio", "concurrent"}
    ]
    assert faults == []


def banned_calls(path: Path, code: str | None = None) -> Iterator[tuple[int, str]]:
    """Yield every way to fork an interpreter that may have threads and grpc in it."""
    for line, name in imports(path, code):
        if name.partition(".")[0] == "multiprocessing":
            yield line, "multiprocessing"
        if name in {"os.fork", "os.forkpty", "concurrent.futures.ProcessPoolExecutor"}:
            yield line, name
    yield from facts(path, code).banned_calls


def test_nothing_but_launcher_and_shim_forks() -> None:
    faults = [
        f"{where(path, line)}: {what} is only for {', '.join(FORKING)}"
        for part in PARTS
        for path in part_files(part)
        if not may_fork(path)
        for line, what in banned_calls(path)
    ]
    assert faults == []


def test_the_search_for_banned_calls_finds_them() -> None:
    code = """
import multiprocessing.pool
from os import fork
import os, subprocess
os.forkpty()
subprocess.Popen(["x"], preexec_fn=os.setsid)
"""
    found = sorted(what for _, what in banned_calls(ROOT / "nodectl" / "example.py", code))
    assert found == ["multiprocessing", "os.fork", "os.forkpty", "preexec_fn"]


def test_relative_imports_are_resolved() -> None:
    code = "from . import a\nfrom ..b import c\nfrom ... import core\n"
    names = [name for _, name in imports(ROOT / "server" / "db" / "example.py", code)]
    assert names == ["pliant.server.db.a", "pliant.server.b.c", "pliant.core"]


def test_files_and_functions_stay_short() -> None:
    faults = []
    for path in source_files():
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > MAX_FILE_LINES:
            faults.append(f"{where(path, 1)}: {lines} lines, the limit is {MAX_FILE_LINES}")
        for line, name, length in facts(path).functions:
            if length > MAX_FUNCTION_LINES:
                faults.append(
                    f"{where(path, line)}: {name} has {length} lines, "
                    f"the limit is {MAX_FUNCTION_LINES}"
                )
    assert faults == []


@pytest.mark.parametrize("part", PARTS)
def test_every_part_says_what_it_is(part: str) -> None:
    text = ast.get_docstring(parse(ROOT / part / "__init__.py"))
    assert text is not None
    assert 3 <= len(text.splitlines()) <= 20
    assert "May import:" in text
    assert (ROOT / part / "py.typed").is_file()


@pytest.mark.parametrize("part", PARTS)
def test_the_package_has_the_part_through_a_relative_link(part: str) -> None:
    link = ROOT / "src" / "pliant" / part
    assert os.readlink(link) == f"../../{part}"
    assert link.resolve() == ROOT / part


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (
            "client/commands/jobsub.py",
            "from pliant.client.commands.jobsub import main; main(['--help'])",
        ),
        ("client/commands/cli.py", "from pliant.client.commands.cli import main; main(['--help'])"),
        ("appkit/__init__.py", "import pliant.appkit as kit; getattr(kit, 'malleable', None)"),
    ],
    ids=["jobsub --help", "pliant --help", "import pliant.appkit"],
)
def test_starting_is_cheap(module: str, code: str) -> None:
    if not (ROOT / module).exists():
        pytest.skip(f"{module} does not exist yet")
    slow = {"grpc", "google", "sqlalchemy", "rich", "click", "cryptography"}
    assert fresh_modules(code) & slow == set()
