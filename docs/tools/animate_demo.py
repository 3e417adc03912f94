"""Turn a recording of the demo into an animated picture.

``pliant demo --events demo.jsonl``, then
``python docs/tools/animate_demo.py demo.jsonl docs/pictures/demo.svg``

The picture is that of ``pliant gantt --result demo.jsonl``, uncovered from left to right at twice
the speed of the recording, with what happens in words below it. It is one SVG with CSS animations,
without scripts. Readers who prefer reduced motion see the whole picture at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from pliant.charts.axes import Scale
from pliant.charts.history_timeline import Recording
from pliant.charts.layout import Window
from pliant.charts.output.svg import to_svg
from pliant.charts.timeline import draw_timeline

#: Recorded seconds in a second of the animation.
SPEED = 2.0
#: For how long the whole picture stays, seconds.
HOLD_S = 4.0
_CAPTION = 34.0

Event = Mapping[str, Any]


def animate(events: Sequence[Event]) -> str:
    """Return the animated picture of recorded events as the text of an SVG file."""
    recording = Recording()
    for event in events:
        recording.apply(event)
    timeline = replace(
        recording.timeline("make demo: three jobs share eight processors"), is_clock=False
    )
    drawing = draw_timeline(timeline)
    left, top, right, bottom = drawing.panel
    caption_y = drawing.height + 6
    drawing.height += _CAPTION
    window = timeline.window
    scale = Scale(window, left, right, top, bottom, 1.0)
    length_s = (window.end - window.start) / SPEED
    total_s = length_s + HOLD_S
    share = 100 * length_s / total_s
    captions = _captions(events, window)
    rules = [
        ".words{opacity:0}.words.last{opacity:1}",
        "@media (prefers-reduced-motion:no-preference){",
        f".curtain,.front{{animation:uncover {total_s:.2f}s linear infinite}}",
        f"@keyframes uncover{{0%{{transform:translateX(0)}}{share:.2f}%,100%"
        f"{{transform:translateX({right - left:.1f}px)}}}}",
    ]
    texts = []
    for number, (time, words) in enumerate(captions):
        begin = share * (time - window.start) / (window.end - window.start)
        after = [each for each, _ in captions[number + 1 :]]
        until = share * (after[0] - window.start) / (window.end - window.start) if after else 100.0
        rules.append(
            f".w{number}{{animation:w{number} {total_s:.2f}s step-end infinite}}"
            f"@keyframes w{number}{{0%{{opacity:{int(begin <= 0)}}}{begin:.2f}%{{opacity:1}}"
            f"{until:.2f}%,100%{{opacity:{int(until >= 100)}}}}}"
        )
        last = "" if after else " last"
        texts.append(
            f'<text class="ink b words w{number}{last}" x="{left:.0f}" y="{caption_y:.0f}" '
            f'font-size="13">{escape(words)}</text>'
        )
    rules.append("}@media (prefers-reduced-motion:reduce){.curtain,.front{display:none}}")
    queue = bottom + 80
    added = [
        f"<style>{''.join(rules)}</style>",
        f'<defs><clipPath id="all"><path d="M{left} {top - 4}H{right + 1}V{queue}H{left}z"/>'
        "</clipPath></defs>",
        '<g clip-path="url(#all)">',
        f'<path class="card curtain" d="M{left} {top - 4}H{right + 1}V{queue}H{left}z"/>',
        f'<path class="s-accent front" stroke-width="1.5" d="M{scale.left} {top - 4}V{queue}"/>',
        "</g>",
        *texts,
        "</svg>\n",
    ]
    return to_svg(drawing).removesuffix("</svg>\n") + "\n".join(added)


def _captions(events: Sequence[Event], window: Window) -> list[tuple[float, str]]:
    """Return captions for the events of the recording, each with its time."""
    names = {e["job"]: e["data"].get("name", "") for e in events if e["kind"] == "job.submitted"}
    found = []
    for event in events:
        data, who = event.get("data") or {}, names.get(event.get("job"), "")
        words = ""
        match event["kind"]:
            case "job.submitted":
                words = f"{who} is submitted for {data['sizes']} processors"
            case "job.started":
                words = f"{who} starts on {len(data['processors'])} processors"
            case "offer.answered":
                words = f"{who} answers an offer of {data.get('size')}: {data['answer'].lower()}"
            case "job.resized":
                verb = "grows" if data["direction"] == "grow" else "shrinks"
                pause = 1000 * data.get("seconds", {}).get("total", 0.0)
                words = f"{who} {verb} from {data['from']} to {data['to']} processors"
                words += f", and stops for {pause:.0f} ms for this" if pause else ""
            case "job.ended":
                words = f"{who} is {data['state'].lower()}"
        if words and event["time"] >= window.start:
            found.append((event["time"], f"{event['time'] - window.start:4.1f} s   {words}"))
    return found


def main(recording: str, picture: str) -> None:
    lines = Path(recording).read_text(encoding="utf-8").splitlines()
    Path(picture).write_text(animate([json.loads(line) for line in lines]), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python docs/tools/animate_demo.py RECORDING PICTURE.svg")
    main(*sys.argv[1:])
