"""The live page and the pictures in files arrange the same jobs in the same way."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pliant.charts import layout
from pliant.charts.colours import palette
from pliant.charts.job_sizes_over_time import Band, Hold
from pliant.charts.layout import Window
from testkit import ROOT

PAGE = ROOT / "client/dashboard/static"


def jobs(random: Random, count: int) -> list[dict[str, Any]]:
    """Return jobs as the page gets them, of many lengths, some of which still run."""
    found = []
    for number in range(1, count + 1):
        time, segments = random.uniform(0, 900), []
        for _ in range(random.randint(1, 5)):
            end = time + random.choice((0.3, 4, 80)) * random.uniform(0.5, 2)
            segments.append([time, end, random.randint(1, 9), ""])
            time = end + random.choice((0, 0, 15))
        if random.random() < 0.2:
            segments[-1][1] = None
        user = f"u{random.randint(1, 14)}"
        found.append({"id": number, "user": user, "segments": segments, "marks": []})
    return found


def arranged(scene: dict[str, Any]) -> dict[str, Any]:
    """Return what `arrange.mjs` returns for a scene."""
    window = Window(scene["start"], scene["end"], scene["now"])
    bands = [
        Band(job["id"], "", job["user"], 0, [Hold(*segment[:3]) for segment in job["segments"]])
        for job in scene["jobs"]
    ]
    shown = layout.bands_between(bands, window)
    merged = layout.merge_short(shown, window, scene["pixel"] * layout.MIN_WIDTH)
    pieces = layout.stack(merged, window, scene["pixel"] * layout.MERGED)
    marks = layout.choose_marks(
        (band.id * 7 % 200, len(band.holds) * 5, "counter" if band.id % 3 else "refused")
        for band in bands
        if band.id is not None
    )
    return {
        "order": [band.id for band in shown],
        "concurrency": layout.concurrency(shown, window),
        "merged": [[band.id, [[*hold[:3]] for hold in band.holds]] for band in merged],
        "pieces": [[[p.a, p.b, p.bottom, p.height] for p in own] for own in pieces],
        "outlined": [layout.is_outlined(own, 1 / scene["pixel"], 3) for own in pieces],
        "users": [[*area] for area in layout.by_user(shown, window, 50)],
        "marks": None if marks is None else [[*mark] for mark in marks],
    }


def numbers(value: Any) -> Any:
    """Return a value with rounded numbers: sums in another order differ in the last digits."""
    if isinstance(value, list | tuple):
        return [numbers(each) for each in value]
    if isinstance(value, dict):
        return {key: numbers(each) for key, each in value.items()}
    return round(value, 6) + 0.0 if isinstance(value, float) else value


def test_page_and_files_arrange_jobs_alike() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    random = Random(7)
    scenes = [
        {"jobs": jobs(random, count), "start": 100.0, "end": end, "now": 950.0, "pixel": pixel}
        for count in (1, 8, 40, 150)
        for end in (900.0, 1000.0)
        for pixel in (0.1, 1.0, 5.0)
    ]
    done = subprocess.run(
        [node, str(Path(__file__).with_name("arrange.mjs"))],
        input=json.dumps(scenes),
        capture_output=True,
        text=True,
        env={**os.environ, "PLIANT_PAGE": str(PAGE / "js")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    for scene, there in zip(scenes, answer["found"], strict=True):
        assert numbers(arranged(scene)) == numbers(there)
    for name, value in answer["constants"].items():
        own = getattr(layout, name)
        assert (list(own) if isinstance(own, tuple) else own) == value, name


def test_page_and_files_have_the_same_colours() -> None:
    style = (PAGE / "style.css").read_text()
    light = style[: style.index("@media (prefers-color-scheme: dark)")]
    dark = style[style.index(":root[data-theme=dark]") : style.index("* { box-sizing")]
    for text, theme in ((light, palette("light")), (dark, palette("dark"))):
        page = dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6});", text))
        own = {name: colour for name, colour in theme.items() if not name.startswith("on")}
        assert own == {name: page[name] for name in own}
