"""The documents tell the truth where a program can check it."""

from pathlib import Path

from pliant.core.lifecycle import diagram

ROOT = Path(__file__).parent.parent


def test_the_life_cycle_diagram_is_the_table() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    start = text.index("```mermaid\n") + len("```mermaid\n")
    assert text[start : text.index("\n```", start)] == diagram()
