from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pliant.client.gantt.gantt_command import main

SVG = "{http://www.w3.org/2000/svg}"
NODES = [{"name": "n1", "slots": 4, "state": "UP"}, {"name": "n2", "slots": 4, "state": "UP"}]


def event(at: float, job: int | None, kind: str, **data: Any) -> dict[str, Any]:
    return {"seq": 0, "time": at, "job": job, "kind": kind, "text": "", "data": data}


def story(start: float = 0.0) -> list[dict[str, Any]]:
    return [
        event(start, None, "node.registered", node="n1", first=0, slots=4, state="UP"),
        event(start, None, "node.registered", node="n2", first=4, slots=4, state="UP"),
        event(start, 1, "job.submitted", name="heat", user="ann", sizes="1-8"),
        event(start + 1, 1, "job.started", processors=[0, 1, 2, 3, 4, 5, 6, 7]),
        event(start + 4, 1, "offer.answered", answer="REJECT", size=2),
        event(start + 5, 1, "job.resized", direction="shrink", processors=[0, 1, 6, 7]),
        event(start + 5.05, 1, "processors.released", processors=[2, 3, 4, 5]),
        event(start + 5.1, 2, "job.submitted", name="<b> & \x1b[1m", user="bob", sizes="4"),
        event(start + 5.2, 2, "job.started", processors=[2, 3, 4, 5]),
        event(start + 9, 2, "job.ended", state="COMPLETED"),
        event(start + 12, 1, "job.ended", state="COMPLETED"),
    ]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in story()))
    return path


def drawn(path: Path) -> ElementTree.Element:
    return ElementTree.fromstring(path.read_text())


def jobs_of(root: ElementTree.Element) -> set[str]:
    return {
        path.attrib["data-job"] for path in root.iter(f"{SVG}path") if "data-job" in path.attrib
    }


def words_of(root: ElementTree.Element) -> str:
    return " | ".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))


def test_a_recording_is_drawn(recording: Path, tmp_path: Path) -> None:
    assert main(["--result", str(recording), "-o", str(tmp_path / "g.svg")]) == 0
    root = drawn(tmp_path / "g.svg")
    assert jobs_of(root) == {"1", "2"}
    words = words_of(root)
    for part in ("1 heat", "2 <b> & \\x1b[1m", "processors held", "(1)", "since the beginning (s)"):
        assert part in words


def test_only_the_named_jobs_are_drawn(recording: Path, tmp_path: Path) -> None:
    assert main(["2", "--result", str(recording), "-o", str(tmp_path / "g.svg")]) == 0
    assert jobs_of(drawn(tmp_path / "g.svg")) == {"2"}


def test_a_list_of_events_is_a_recording_too(tmp_path: Path) -> None:
    (tmp_path / "h.json").write_text(json.dumps(story(1.7e9)))
    assert main(["--result", str(tmp_path / "h.json"), "-o", str(tmp_path / "g.svg")]) == 0
    assert "2023-11-14" in words_of(drawn(tmp_path / "g.svg"))


def test_a_part_of_a_simulation(recording: Path, tmp_path: Path) -> None:
    picture = str(tmp_path / "g.svg")
    assert main(["--result", str(recording), "-o", picture, "--since", "10s"]) == 0
    assert jobs_of(drawn(tmp_path / "g.svg")) == {"1"}
    assert main(["--result", str(recording), "-o", picture, "--since", "2026-01-01"]) == 2
    assert main(["--result", str(recording), "-o", picture, "--since", "5s", "--until", "3s"]) == 2
    assert main(["--result", str(recording), "-o", picture, "--until", "9" * 400 + "d"]) == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "no job started"), ("{}\n", "line 1: is not an event"), ("{", "line 1: is not JSON"),
     ("[1]", "event 1: is not an event"), ("\udcff", "is not text"),
     ('{"time": 1e300, "kind": "job.started", "job": 1}', "line 1: time: 1e+300"),
     ('{"time": NaN, "kind": "job.started", "job": 1}', "line 1: time: nan"),
     ('{"time": 1, "kind": "node.registered", "data": {"node": "n", "slots": 1e10}}', "slots"),
     ('{"time": 1, "kind": "job.started", "job": 1, "data": {"processors": [9999999999]}}',
      "processors: 1e+10")],
)  # fmt: skip
def test_files_that_are_no_recording(
    content: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x"
    path.write_text(content, errors="surrogateescape")
    assert main(["--result", str(path), "-o", str(tmp_path / "g.svg")]) == 1
    assert says in capsys.readouterr().err
    assert not (tmp_path / "g.svg").exists()


def test_too_many_rows_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        event(0, None, "node.registered", node="n", first=0, slots=4096, state="UP"),
        event(1, 1, "job.started", processors=[7]),
    ]
    (tmp_path / "x").write_text(json.dumps(events))
    assert main(["--result", str(tmp_path / "x"), "--view", "processors"]) == 1
    assert "4,096" in capsys.readouterr().err


def test_rows_of_processors(recording: Path, tmp_path: Path) -> None:
    picture = tmp_path / "g.svg"
    assert main(["--result", str(recording), "-o", str(picture), "--view", "processors"]) == 0
    words = words_of(drawn(picture))
    assert "n1" in words
    assert "n2" in words


def test_the_same_recording_gives_the_same_bytes(recording: Path, tmp_path: Path) -> None:
    pictures = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for picture in pictures:
        assert main(["--result", str(recording), "-o", str(picture)]) == 0
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_a_picture_in_png(recording: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="PNG needs the extra plots")
    assert main(["--result", str(recording), "-o", str(tmp_path / "g.png")]) == 0
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")


def test_png_without_matplotlib(
    recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pliant.charts.output.files.can_write_png", lambda: False)
    assert main(["--result", str(recording), "-o", "g.png"]) == 1
    assert "pliant[plots]" in capsys.readouterr().err


def test_a_file_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, says in [
        ("none/g.svg", f"the directory {tmp_path}/none does not exist; mkdir -p it"),
        (".", "is a directory; name a file in it"),
    ]:
        assert main(["-o", str(tmp_path / name)]) == 1
        assert says in capsys.readouterr().err


def test_a_name_that_says_no_kind(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("g.jpg", "g.pdf", "g"):
        picture = tmp_path / name
        assert main(["--result", str(recording), "-o", str(picture)]) == 2
        assert "end the name with .svg or .png" in capsys.readouterr().err
        assert not picture.exists()
    assert main(["--result", str(recording), "-o", "/dev/null"]) == 0


# ---------------------------------------------------------------- a running server


@pytest.fixture
def cluster(server: Any) -> float:
    """Let the server answer about two jobs; return its time."""
    now = time.time()
    ann = {"job": 1, "run": 1, "user": "ann", "account": "", "nodes": ["n1"]}
    bob = {**ann, "job": 2, "user": "bob"}
    server.answers |= {
        "nodes": {"nodes": NODES, "now": now, "strategy": "equipartition"},
        "accounting": {
            "phases": [
                {**ann, "start": now - 60, "end": now - 20, "processors": 8},
                {**ann, "start": now - 20, "end": None, "processors": 4},
                {**bob, "start": now - 20, "end": now - 5, "processors": 4},
            ],
            "complete": True,
            "all_users": False,
            "now": now,
        },
        "jobs": {
            "jobs": [
                {"id": 1, "name": "heat", "user": "ann", "submit": now - 61, "end": None},
                {"id": 2, "name": "b", "user": "bob", "submit": now - 30, "end": now - 5},
                {"id": 3, "name": "waits", "user": "bob", "submit": now - 9, "end": None},
            ],
            "missing": [],
        },
        "history": {
            "events": [
                event(now - 61, 1, "job.submitted", name="heat", user="ann", sizes="1-8"),
                event(now - 60, 1, "job.started", processors=list(range(8))),
                event(now - 30, 1, "offer.answered", answer="COUNTER"),
                event(now - 20, 1, "job.resized", direction="shrink", processors=[0, 1, 2, 3]),
                event(now - 20, 1, "processors.released", processors=[4, 5, 6, 7]),
                event(now - 20, 2, "job.started", processors=[4, 5, 6, 7]),
                event(now - 5, 2, "job.ended", state="COMPLETED"),
            ]
        },
    }  # fmt: skip
    return now


@pytest.mark.usefixtures("cluster")
def test_the_live_cluster_is_drawn(tmp_path: Path) -> None:
    assert main(["-o", str(tmp_path / "now.svg")]) == 0
    root = drawn(tmp_path / "now.svg")
    assert jobs_of(root) == {"1", "2"}
    words = words_of(root)
    assert "counter-offer (1)" in words
    assert "your own jobs" in words


def test_the_window_reaches_the_server(server: Any, cluster: float, tmp_path: Path) -> None:
    assert main(["-o", str(tmp_path / "past.svg"), "--since", "2h", "--until", "1h"]) == 0
    asked = {request["op"]: request for request in server.requests}
    for name in ("accounting", "history"):
        assert asked[name]["since"] == pytest.approx(cluster - 7200, abs=60)
        assert asked[name]["until"] == pytest.approx(cluster - 3600, abs=60)


@pytest.mark.usefixtures("cluster")
def test_a_job_that_is_not_there(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers["jobs"] = {"jobs": [], "missing": [9]}
    assert main(["9"]) == 1
    assert capsys.readouterr() == ("", "pliant gantt: there is no job 9\n")
