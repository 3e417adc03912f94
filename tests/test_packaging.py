"""What is shipped: every source file, the data beside it, and commands that can be loaded."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from testkit import PARTS, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

ENTRY_POINTS = sorted(
    {
        *PROJECT["scripts"].values(),
        *(target for group in PROJECT["entry-points"].values() for target in group.values()),
    }
)

build = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("packaging"),  # one process builds, once
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout with one more file of each kind that may be added later."""
    copy = tmp_path_factory.mktemp("packaging") / "checkout"
    copy.mkdir()
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, copy)
    shutil.copy(ROOT / "LICENSE", copy)
    shutil.copytree(ROOT / "src", copy / "src", symlinks=True)
    for part in PARTS:
        shutil.copytree(
            ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "*.py[co]")
        )
    for name in (
        "core/new_package/__init__.py",
        "core/new_package/module.py",
        "server/database/migrations/env.py",
        "server/migrations/script.py.mako",
        "server/migrations/versions/0000_example.py",
        "examples/new_folder/example.yaml",
        "deploy/new_folder/example.service",
        "protos/example.proto",
        "server/new_static/example.css",
    ):
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return copy


def build_wheel(checkout: Path, out: Path, *args: str) -> set[str]:
    """Build without a network and return the names of the files in the wheel.

    Each build has a copy of its own: the lists that one leaves behind would hide gaps from another.
    """
    source = shutil.copytree(checkout, out / "source", symlinks=True)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, *args, source],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        return set(archive.namelist())


@pytest.fixture(scope="module")
def from_sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return build_wheel(checkout, tmp_path_factory.mktemp("from-sdist"))


@pytest.fixture(scope="module")
def direct(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return build_wheel(checkout, tmp_path_factory.mktemp("direct"), "--wheel")


def expected(checkout: Path) -> set[str]:
    """Return the names a wheel must hold: the package, and everything in the parts."""
    return {"pliant/__init__.py"} | {
        f"pliant/{path.relative_to(checkout).as_posix()}"
        for part in PARTS
        for path in (checkout / part).rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("mode", ["direct", "from_sdist"])
class TestWheel:
    pytestmark = build

    def test_holds_every_file_of_the_parts_and_nothing_else(
        self, mode: str, checkout: Path, request: pytest.FixtureRequest
    ) -> None:
        names: set[str] = request.getfixturevalue(mode)
        shipped = {name for name in names if ".dist-info/" not in name}
        assert shipped == expected(checkout)

    def test_holds_the_licence(self, mode: str, request: pytest.FixtureRequest) -> None:
        names: set[str] = request.getfixturevalue(mode)
        assert f"pliant-{PROJECT['version']}.dist-info/licenses/LICENSE" in names


@pytest.mark.parametrize("target", ENTRY_POINTS)
def test_entry_point_can_be_loaded(target: str) -> None:
    module, _, name = target.partition(":")
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} does not exist yet")
    assert callable(getattr(importlib.import_module(module), name))


def test_importing_from_the_repository_root_finds_the_parts() -> None:
    code = "import pliant.core, pathlib; print(pathlib.Path(pliant.core.__file__).parent)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).resolve() == ROOT / "core"
