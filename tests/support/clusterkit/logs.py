"""What the daemons of a cluster have written into their logs: a fault of theirs shows there."""

from __future__ import annotations

from pathlib import Path

#: In the state folder: those of the server, of the controllers, of launchers and shims.
_LOGS = ("server.log", "node-*/nodectl.log", "node-*/shims.log")
_FAULT = "Traceback"


class Logs:
    """Reads on where it was the last time."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._read: dict[Path, int] = {}

    def check(self, *words: str) -> None:
        """See that nothing unforeseen has happened since, nor what these words of a log tell.

        Raises:
            AssertionError: it has; the end of what is new in that log.
        """
        for pattern in _LOGS:
            for path in sorted(self._state.glob(pattern)):
                data = path.read_bytes()
                new = data[self._read.get(path, 0) :].decode(errors="replace")
                self._read[path] = len(data)
                wrong = [word for word in (_FAULT, *words) if word in new]
                assert not wrong, f"{wrong} in {path.relative_to(self._state)}:\n{new[-5000:]}"
