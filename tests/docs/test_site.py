"""The documentation site: it is built without warnings, and its reference is complete."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pliant.client
import pliant.strategies
from pliant import appkit
from pliant.core.values.negotiation_policy import NegotiationPolicy
from pliant.deploy.man_command import find_all_commands
from pliant.nodectl.settings import ControllerSettings
from pliant.server.config import Config
from testkit import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("site")]
DOCS = ROOT / "docs"

#: Other names of types, which autodoc cannot show; the page explains them in its text.
ALIASES = {"JobId", "NodeName", "Speedup", "ProcessorMap", "NO_PROCESSORS", "Reason", "served"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as ``make docs`` does; return the folder of its pages."""
    pytest.importorskip("sphinx", reason="needs the extra docs")
    pytest.importorskip("furo", reason="needs the extra docs")
    pytest.importorskip("myst_parser", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"),
            *(str(DOCS), str(folder)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def targets(site: Path) -> set[str]:
    """Return the names of all Python objects and options that the site describes."""
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda _, path: path)
    return {
        name
        for kind in ("py", "std")
        for key in inventory
        if key.startswith(kind)
        for name in inventory[key]
    }


def test_every_public_name_is_described(site: Path) -> None:
    found = targets(site)
    for module in (appkit, pliant.client, pliant.strategies):
        expected = {name for name in module.__all__ if name not in ALIASES}
        last = {name.rpartition(".")[2] for name in found if name.startswith("pliant.")}
        assert expected - last == set()


def test_every_call_of_a_job_and_of_the_client_is_described(site: Path) -> None:
    found = targets(site)
    for cls in (appkit.Job, pliant.client.Client):
        calls = {name for name, _ in inspect.getmembers(cls, callable) if name[0] != "_"}
        assert {
            name
            for name in calls
            if not any(each.endswith(f".{cls.__name__}.{name}") for each in found)
        } == set()


def test_members_that_only_resizes_use_are_left_out(site: Path) -> None:
    found = targets(site)
    assert [name for name in found if re.search(r"\.(commit|local_metadata|rollback)$", name)] == []


def test_every_command_has_a_page_with_its_options(site: Path) -> None:
    for name in find_all_commands():
        assert (site / "generated" / "commands" / f"{name}.html").exists()
    found = targets(site)
    assert {"jobsub.--prefer", "jobctl-resize.--release", "pliant-up.--detach"} <= found


def test_every_configuration_key_is_listed(site: Path) -> None:
    page = (site / "generated" / "configuration-keys.html").read_text()
    listed = set(re.findall(r">(\w+)</span></code></p></td>", page))
    for cls in (Config, ControllerSettings):
        assert set(cls.__struct_fields__) <= listed
    assert set(NegotiationPolicy.__dataclass_fields__) <= listed


def test_the_page_of_commands_names_each_once() -> None:
    rows = re.findall(r"(?m)^\| `([a-z][a-z -]*)` \|", (DOCS / "commands.md").read_text())
    assert sorted(row.replace(" ", "-") for row in rows) == sorted(find_all_commands())
