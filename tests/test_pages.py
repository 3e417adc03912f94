"""The users' pages name everything there is, with its default, and nothing else."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
from pathlib import Path

import msgspec
import pytest
import yaml

import pliant.appkit as kit
from pliant.core.values.negotiation_policy import NegotiationPolicy
from pliant.nodectl.controller.start_order import make_environment
from pliant.nodectl.settings import ControllerSettings
from pliant.nodectl.settings import load as load_settings
from pliant.protos import node_pb2 as wire
from pliant.protos.staging.environment_variables import STAGE_ARCHIVE, STAGE_OUTPUTS
from pliant.server.config import Config, load_config
from testkit import PARTS, ROOT, part_files, run_python

DOCS = ROOT / "docs"


def section(page: str, title: str = "") -> str:
    text = (DOCS / page).read_text()
    return next(part for part in text.split("\n## ") if part.startswith(title))


def rows(text: str) -> dict[str, str]:
    """Return the first two columns of the table in a text."""
    found = re.findall(r"^\| `(\w+)` \| (.*?) \|", text, re.M)
    assert len(found) == len(dict(found)), "a row is there twice"
    return dict(found)


def fenced(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def shown(value: object) -> str:
    return "(empty)" if value == "" else f"`{value if isinstance(value, str) else as_json(value)}`"


def as_json(value: object) -> str:
    if isinstance(value, NegotiationPolicy):
        return "{}" if value == NegotiationPolicy() else str(value)
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def test_every_key_of_the_server_has_its_row_and_default() -> None:
    default = Config()
    expected = {name: shown(getattr(default, name)) for name in Config.__struct_fields__}
    assert rows(section("configuration.md", "The server")) == expected


def test_every_key_of_the_policy_has_its_row_and_default() -> None:
    names = NegotiationPolicy.__dataclass_fields__
    expected = {name: shown(getattr(NegotiationPolicy(), name)) for name in names}
    assert rows(section("configuration.md", "Negotiation")) == expected


def test_every_key_of_a_controller_has_its_row_and_default() -> None:
    found = rows(section("configuration.md", "A node controller"))
    assert list(found) == list(ControllerSettings.__struct_fields__)
    for field in msgspec.structs.fields(ControllerSettings):
        if field.default is not msgspec.NODEFAULT:
            assert found[field.name] == shown(field.default)


def test_the_files_on_the_page_are_right(tmp_path: Path) -> None:
    server, policy, node = fenced((DOCS / "configuration.md").read_text(), "yaml")
    for name, text in [("server.yaml", server), ("talks.yaml", policy), ("node.yaml", node)]:
        (tmp_path / name).write_text(text)
    assert load_config(tmp_path / "server.yaml").strategy == yaml.safe_load(server)["strategy"]
    assert load_config(tmp_path / "talks.yaml").negotiation.rounds == 4
    assert load_settings(str(tmp_path / "node.yaml"), {}).slots == 16


def test_every_variable_of_a_job_has_its_row() -> None:
    order = wire.StartWorld(world="w", type="mpi", ranks=[wire.Placement(rank=0, processor=5)])
    made = make_environment(order, ControllerSettings(), Path("/spool"))
    # Each process has its own values of those that are added.
    expected = {name for name in made if name.startswith("PLIANT_")}
    expected |= {"PLIANT_PROCESSOR", "PLIANT_CONTROL_FD", "PLIANT_DEVICES", "PLIANT_STEP"}
    expected |= {STAGE_ARCHIVE, STAGE_OUTPUTS}  # from the submission
    assert set(rows(section("environment.md", "What a job finds"))) == expected
    text = section("environment.md", "What a job finds")
    assert [name for name in made if f"`{name}`" not in text] == []


def test_every_error_and_method_that_there_is_and_no_other() -> None:
    text = (DOCS / "appkit.md").read_text()
    exported = {name: getattr(kit, name) for name in kit.__all__}
    errors = [n for n, e in exported.items() if isinstance(e, type) and issubclass(e, Exception)]
    assert [name for name in errors if f"`{name}" not in text] == []
    public = {name for name in dir(kit.Job) if not name.startswith("_")}
    assert set(re.findall(r"\bjob\.(\w+)", text)) == public


@pytest.mark.mpi
def test_the_program_on_the_page_runs_alone(tmp_path: Path) -> None:
    code = fenced((DOCS / "appkit.md").read_text(), "python")[0]
    (tmp_path / "mean.py").write_text(code)
    done = run_python(str(tmp_path / "mean.py"))
    assert done.stdout == "mean 1.000000, processes: 1\n"


def all_pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]


def test_the_pages_are_linked() -> None:
    text = (ROOT / "README.md").read_text()
    for page in ("configuration.md", "environment.md", "appkit.md"):
        assert f"(docs/{page})" in text
    for path in all_pages():
        for link in re.findall(r"\]\(([^)#:]+)[)#]", path.read_text()):
            assert (path.parent / link).exists(), f"{path.name}: {link}"


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_to_sections_have_their_headings() -> None:
    for path in all_pages():
        for link, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", path.read_text()):
            page = path.parent / link if link else path
            assert anchor in anchors(page), f"{path.name}: {link}#{anchor}"


#: Folders at the root whose files pages name by their path.
FOLDERS = "|".join([*PARTS, "benchmarks", "tests"])


def test_files_that_pages_name_are_there() -> None:
    missing = [
        f"{page.name}: {name}"
        for page in all_pages()
        for name in re.findall(rf"`((?:{FOLDERS})/[\w./-]+)`", page.read_text())
        if not (ROOT / name).exists()
    ]
    assert missing == []


def test_the_table_of_the_core_names_its_modules() -> None:
    table = section("architecture.md", "The core")
    named = set(re.findall(r"`(\w+)\.py`", table)) | set(re.findall(r"/(\w+)\.py`", table))
    for folder in ("handlers", "transitions"):
        modules = {path.stem for path in (ROOT / "core" / folder).glob("[a-z]*.py")}
        assert modules - named == set()


#: Names of MPI and of tools.
FOREIGN = re.compile(r"MPI_.*|Comm\..*|Reduce_init|Ireduce|Split_type")


def test_names_of_the_code_on_pages_for_developers_exist() -> None:
    sources = [path for part in PARTS for path in part_files(part)]
    sources += [ROOT / "tests" / "test_architecture.py", *(ROOT / "protos").glob("*.proto")]
    known = {word for path in sources for word in re.findall(r"\w+", path.read_text("utf-8"))}
    missing = []
    for page in [ROOT / "CONTRIBUTING.md", DOCS / "architecture.md", *DOCS.glob("decisions/*.md")]:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
        for name in re.findall(r"`([A-Za-z_][\w.]*)(?:\([\w, ]*\))?`", text):
            last = name.rpartition(".")[2]
            is_symbol = "_" in last.strip("_") or re.search(r"[a-z][A-Z]|^[A-Z]", last)
            if is_symbol and not FOREIGN.fullmatch(name) and last not in known:
                missing.append(f"{page.name}: {name}")
    assert missing == []


#: The modules of commands.
COMMANDS = {
    **{name: f"pliant.client.commands.{name}" for name in ("jobsub", "jobstat", "jobdel")},
    **{name: f"pliant.client.commands.{name}" for name in ("jobctl", "nodestat")},
    "jobacct": "pliant.client.accounting.jobacct",
    "pliant": "pliant.client.commands.cli",
}


def help_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the help of a command, such as jobsub, or jobctl hold."""
    main = importlib.import_module(COMMANDS[words[0]]).main
    with contextlib.suppress(SystemExit):
        main([*words[1:], "--help"])
    return capsys.readouterr().out


def test_commands_and_options_for_users_of_slurm_exist(capsys: pytest.CaptureFixture[str]) -> None:
    ours = [
        cell
        for line in (DOCS / "slurm.md").read_text().splitlines()
        for cell in line.split("|")[2:3]
    ]
    typed = [text for cell in ours for text in re.findall(r"`([^`]+)`", cell)]
    assert len(typed) > 40
    for text in typed:
        words = text.split()
        if words[0].startswith("-"):
            words.insert(0, "jobsub")
        if words[0] not in COMMANDS:
            continue
        count = 3 if words[:2] == ["pliant", "node"] else 2
        named = words[:count] if words[0] in {"jobctl", "pliant"} else words[:1]
        known = help_of(named, capsys)
        assert known.startswith("usage:"), text
        options = [word for word in words if re.match(r"--?[a-z]", word)]
        assert [option for option in options if not re.search(rf"{option}\b", known)] == [], text
