"""Outputs of several nodes and runs in one submission folder."""

from __future__ import annotations

import io
from pathlib import Path

from pliant.protos.staging.archive import pack
from pliant.protos.staging.deliver_outputs import deliver


def from_node(base: Path, node: str, **files: str) -> io.BytesIO:
    folder = base / node
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    archive = io.BytesIO()
    pack(str(folder), files, archive, 1 << 20)
    archive.seek(0)
    return archive


def test_output_is_appended_and_other_files_are_kept_apart(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "log").write_text("of an older job")
    (target / "result").write_text("old")
    earlier, taken = set[str](), set[str]()
    for node in ("n1", "n2"):
        archive = from_node(tmp_path, node, log=f"{node} ", result=node)
        names = deliver(
            archive,
            str(target),
            node,
            streams={"log"},
            truncates=True,
            earlier=earlier,
            taken=taken,
            limit=1 << 20,
        )
        earlier |= set(names)
        taken |= set(names)
    found = {path.name: path.read_text() for path in target.iterdir()}
    assert found == {"log": "n1 n2 ", "result": "n1", "result.n2": "n2"}


def test_a_job_that_appends_keeps_the_existing_output(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before ")
    archive = from_node(tmp_path, "n1", log="now")
    deliver(
        archive,
        str(tmp_path),
        "n1",
        streams={"log"},
        truncates=False,
        earlier=(),
        taken=(),
        limit=1 << 20,
    )
    assert (tmp_path / "log").read_text() == "before now"
