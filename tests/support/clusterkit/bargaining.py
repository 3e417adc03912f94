"""The bargaining program as a job, for tests of talks with real applications."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from clusterkit.cluster import Cluster
from clusterkit.programs import submit_program
from pliant.client.api import Event
from testkit import wait_until


class Bargaining:
    """The bargaining program as a job; ``answers`` are what it says to offers."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        sizes: str,
        size: int,
        resources: Sequence[str] = (),
        **answers: object,
    ) -> None:
        self.cluster, self.folder, self.size = cluster, folder, size
        text = json.dumps(answers)
        self.id = submit_program(
            cluster,
            "bargaining.py",
            folder,
            text,
            sizes=sizes,
            prefer=size,
            resources=resources,
        )

    def up(self) -> Bargaining:
        """Wait until it runs on its first size and can be resized."""
        self.cluster.wait_malleable(self.id)
        self.has(self.size)
        return self

    def has(self, size: int) -> None:
        """Wait until the job runs on so many processors, and holds no others."""
        self.cluster.wait_for(
            self.id,
            lambda job: (job.state, job.held, self._ranks()) == ("RUNNING", size, size),
            f"{size} processors",
        )

    def _ranks(self) -> int:
        """Return how many it runs on; while it grows it holds more."""
        kinds = ("job.started", "job.resized")
        events = [event for event in self.cluster.history(self.id) if event.kind in kinds]
        return len(events[-1].data["processors"])

    def goes_on(self) -> None:
        """Wait for further steps; the data are checked in each."""
        before = self.steps()
        self.cluster.wait_for(self.id, lambda _: self.steps() > before + 1, "steps")

    def steps(self) -> int:
        """Return how many steps it has done."""
        return int((self.folder / "steps").read_text())

    def say(self, text: str) -> None:
        """Have the program do something at its next step."""
        (self.folder / "new").write_text(text)
        (self.folder / "new").rename(self.folder / "say")
        wait_until(lambda: not (self.folder / "say").exists(), what=f"{text!r} to be read")

    def prints(self, text: str) -> None:
        """Wait until a text is in its output."""
        self.cluster.wait_for(
            self.id, lambda _: text in (self.folder / "out").read_text(), f"{text!r} printed"
        )

    def why(self) -> str:
        """Return what ``jobctl why`` tells of it."""
        return "\n".join(self.cluster.client.why(self.id).text)

    def told(self, text: str) -> Event:
        """Wait until its history tells something; what it tells."""
        found: list[Event] = []

        def there() -> bool:
            found[:] = [event for event in self.cluster.history(self.id) if text in event.text]
            return bool(found)

        self.cluster.wait_for(self.id, lambda _: there(), f"{text!r} in its history")
        return found[-1]

    def talk(self, resize: int) -> list[str]:
        """Return what was said in a talk, in order."""
        events = self.cluster.history(self.id)
        return [
            event.text
            for event in events
            if event.kind.startswith("offer.") and event.data.get("resize") == resize
        ]

    def kinds(self) -> list[str]:
        """Return what happened since the first offer to it."""
        kinds = [event.kind for event in self.cluster.history(self.id)]
        return kinds[kinds.index("offer.sent") :]


def finish(*jobs: Bargaining) -> None:
    """Have jobs end well."""
    for job in jobs:
        job.say("stop")
    for job in jobs:
        end = job.cluster.wait_for(job.id, lambda job: job.final, "its end")
        assert (end.state, end.exit_code) == ("COMPLETED", 0), job.cluster.report(job.id)
