from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from animate_demo import animate


def test_a_recording_becomes_an_animation_with_what_happens_in_words() -> None:
    def event(time: float, job: int | None, kind: str, **data: Any) -> dict[str, Any]:
        return {"time": 1.7e9 + time, "job": job, "kind": kind, "text": "", "data": data}

    text = animate(
        [
            event(0, None, "node.registered", node="n1", first=0, slots=4, state="UP"),
            event(1, 1, "job.submitted", name="<heat>", user="ann", sizes="1-4"),
            event(2, 1, "job.started", processors=[0, 1, 2, 3]),
            event(5, 1, "offer.answered", answer="ACCEPT", size=2),
            event(6, 1, "job.resized", direction="shrink", **{"from": 4, "to": 2},
                  processors=[0, 1], seconds={"total": 0.08}),
            event(9, 1, "job.ended", state="COMPLETED"),
        ]
    )  # fmt: skip
    root = ElementTree.fromstring(text)
    words = [each.text or "" for each in root.iter() if "words" in each.get("class", "").split()]
    assert len(words) == 5
    assert "<heat> shrinks from 4 to 2 processors, and stops for 80 ms for this" in words[3]
    assert "prefers-reduced-motion" in text
    assert "<script" not in text
