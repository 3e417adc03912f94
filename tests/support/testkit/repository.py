"""The sources of this checkout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

#: The folders that become ``pliant.<part>``, from the lowest to the highest.
PARTS = (
    "faults",
    "core",
    "strategies",
    "charts",
    "protos",
    "appkit",
    "nodectl",
    "client",
    "server",
    "simulator",
    "deploy",
    "examples",
)


def part_files(part: str) -> list[Path]:
    """Return the hand-written Python files of a part."""
    return [path for path in sorted((ROOT / part).rglob("*.py")) if "_pb2" not in path.name]


def source_files() -> Iterator[Path]:
    """Yield every hand-written Python file that is not a test."""
    for folder in (*PARTS, "benchmarks", "docs"):
        yield from part_files(folder)
