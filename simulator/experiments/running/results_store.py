"""Results of runs on disk, so that an interrupted experiment continues where it stopped.

Each cell of an experiment has a file. Its first line is a header with the definition of the run
and the version of the code. Each further line is the result of one seed, appended when the run
ends. The name of the file has a hash of the header, so results of another definition, or of other
code, are in other files and are never mixed with the present ones.
"""

import ast
import functools
import hashlib
import importlib.resources
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pliant.simulator.experiments.definition.definitions import ExperimentError

#: The packages that determine the result of a run.
_CODE = (
    *("core", "strategies"),
    *(f"simulator/{name}" for name in ("inputs", "run", "time_shared", "multicluster")),
)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The result of a run, and how long the run took."""

    metrics: dict[str, float]
    #: Seconds; None if the result does not say so.
    seconds: float | None = None


class ResultsStore:
    """A folder with the results of runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self) -> None:
        """Create the folder.

        Raises:
            ExperimentError: the folder cannot be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExperimentError(_unwritable(self._folder, error)) from None
        if not os.access(self._folder, os.W_OK):
            raise ExperimentError(f"--results {self._folder}: the folder cannot be written")

    def read(self, experiment: str, label: str, spec: Mapping[str, Any]) -> dict[int, StoredRun]:
        """Return the stored runs of a cell (one combination of parameters), by seed.

        An incomplete last line, from a process that was killed while it wrote, is ignored.

        Args:
            experiment: the name of the experiment.
            label: the name of the cell.
            spec: the definition of the cell's run. Results of another definition are not returned.
        """
        path = self._path(experiment, label, spec)
        found: dict[int, StoredRun] = {}
        for entry in _entries(path):
            if "seed" in entry:
                found[entry["seed"]] = StoredRun(entry["metrics"], entry.get("seconds"))
        return found

    def add(
        self,
        experiment: str,
        label: str,
        spec: Mapping[str, Any],
        seed: int,
        run: StoredRun,
    ) -> None:
        """Append the result of a run.

        Raises:
            ExperimentError: the file cannot be written.
        """
        path = self._path(experiment, label, spec)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                if file.tell() == 0:
                    file.write(_line({"label": label, "spec": spec, "code": code_version()}))
                elif not path.read_bytes().endswith(b"\n"):
                    file.write(b"\n")
                file.write(_line({"seed": seed, **asdict(run)}))
        except OSError as error:
            raise ExperimentError(_unwritable(path, error)) from None

    def others(self, experiment: str, label: str, spec: Mapping[str, Any]) -> list[str]:
        """Return a description of each file with obsolete results of a cell.

        It says how the definition, or the code, of these results differs from the present one.

        Args:
            experiment: the name of the experiment.
            label: the name of the cell (one combination of parameters).
            spec: the present definition of the cell's run.
        """
        own = self._path(experiment, label, spec)
        pattern = f"{_file_name(label)}.*.jsonl"
        try:
            paths = sorted(own.parent.glob(pattern)) if own.parent.is_dir() else []
        except OSError:
            return []
        return [_other(path, spec) for path in paths if path != own]

    def _path(self, experiment: str, label: str, spec: Mapping[str, Any]) -> Path:
        text = json.dumps([spec, code_version()], sort_keys=True, default=str)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self._folder / _file_name(experiment) / f"{_file_name(label)}.{key}.jsonl"


@functools.cache
def code_version() -> str:
    """Return a hash of the code that determines the result of a run.

    Comments and docstrings do not count, so that results survive a change of words.
    """
    digest = hashlib.sha256()
    paths = sorted(Path(__file__).parent.glob("*tasks.py"))
    for name in _CODE:
        root = Path(str(importlib.resources.files(f"pliant.{name.replace('/', '.')}")))
        paths += sorted(root.rglob("*.py"))
    for path in paths:
        digest.update(path.name.encode())
        digest.update(without_comments(path.read_bytes()).encode())
    return digest.hexdigest()[:16]


def without_comments(source: bytes) -> str:
    """Return the syntax tree of a module as text, without comments, docstrings, line numbers."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.dump(tree)


def _other(path: Path, spec: Mapping[str, Any]) -> str:
    header = next(_entries(path), {})
    if "spec" not in header:
        return f"{path}: cannot be read"
    changed = sorted(_changes(header["spec"], json.loads(json.dumps(spec, default=str))))
    if not changed:
        return f"{path}: made by another version of the simulator"
    return f"{path}: the definition changed: {', '.join(changed)}"


def _changes(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Yield the differences between two definitions, as ``key was old, is new``."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {*old, *new}:
            yield from _changes(old.get(key), new.get(key), f"{place}.{key}" if place else key)
    elif old != new:
        yield f"{place} was {old}, is {new}"


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path}: cannot be read: {error}") from None
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(entry, dict):
            yield entry


def _line(entry: Mapping[str, Any]) -> bytes:
    return (json.dumps(entry, default=str) + "\n").encode()


def _file_name(text: str) -> str:
    """Return a text as a file name: unsuitable characters are replaced."""
    return re.sub(r"[^A-Za-z0-9.+%_-]+", "_", text) or "_"


def _unwritable(path: Path, error: OSError) -> str:
    return f"{path}: cannot be written: {error.strerror or error}"
