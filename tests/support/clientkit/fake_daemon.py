"""A fake server or controller process, for the tests of `pliant up` and `pliant down`.

The server answers users by `FakeUserSocket`. It counts as nodes the controllers that have left a
file, and calls those connected that still run. PRETEND names what goes wrong.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

RUN = Path(os.environ["PLIANT_RUN_DIR"])
STATE = Path(os.environ["PLIANT_STATE_DIR"])
TROUBLE = os.environ.get("PRETEND", "")
#: Open until the process ends.
HELD: list[TextIO] = []


def runs(pid: str) -> bool:
    try:
        return bool(Path("/proc", pid, "cmdline").read_bytes())  # of a zombie there is none
    except OSError:
        return False


def nodes() -> list[dict[str, Any]]:
    marks = {path.name: path.read_text() for path in STATE.glob("up-*")}
    here = {name[3:]: runs(pid) for name, pid in sorted(marks.items())}
    ghosts = STATE / "ghosts"
    left = ghosts.read_text().split() if ghosts.exists() else []
    states = {**dict.fromkeys(left, "SUSPECT"), **dict.fromkeys(here, "UP")}
    return [
        {
            "name": name,
            "state": state,
            "reason": "",
            "slots": 2,
            "used": 0,
            "connected": here.get(name, False),
        }
        for name, state in states.items()
    ]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with (STATE / "requests").open("a") as log:
        log.write(json.dumps(request) + "\n")
    running = STATE / "running"
    match request["op"]:
        case "nodes":
            return {"ok": True, "nodes": nodes()}
        case "jobs":
            return {"ok": True, "jobs": [{"id": 5, "state": "RUNNING"}] * running.exists()}
        case "cancel":
            running.unlink(missing_ok=True)
            return {"ok": True, "results": []}
        case "remove" if request["node"] == "n3":
            message = "node n3 cannot be removed: job 5 is there"
            return {"ok": False, "error": {"kind": "refused", "message": message}}
        case "stop":
            threading.Timer(0.05, os._exit, [0]).start()
    return {"ok": True}


def own(folder: Path, name: str) -> None:
    """Leave the process id where the daemon's lock is."""
    folder.mkdir(exist_ok=True)
    lock = (folder / name).open("w")
    print(os.getpid(), "boot", file=lock, flush=True)
    HELD.append(lock)


def serve() -> None:
    """Answer users until the process ends."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from clientkit.user_socket import FakeUserSocket

    own(STATE, "server.lock")
    (RUN / "server.address").touch()
    FakeUserSocket(RUN, answer)
    signal.pause()


def end_jobs(name: str) -> None:
    """End all worlds, unless that is what goes wrong."""
    if TROUBLE != "stuck":
        for token in (STATE / f"node-{name}" / "spool").glob("*/token"):
            token.unlink()


def main() -> None:
    print("pretending", sys.argv[1:], flush=True)
    if TROUBLE == "deaf" and sys.argv[1] == "server":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if TROUBLE == "dies" and "n2" in sys.argv:
        sys.exit("nothing works today")
    if "--check" in sys.argv:
        if TROUBLE != "refuses":
            sys.exit(0)
        print("pliant server: no such thing", file=sys.stderr)
        sys.exit(2)
    if sys.argv[1] == "server":
        serve()
    name = sys.argv[sys.argv.index("--name") + 1]
    if "--end-jobs" in sys.argv:
        end_jobs(name)
        return
    own(STATE / f"node-{name}", "lock")
    (STATE / f"up-{name}").write_text(str(os.getpid()))
    signal.pause()


main()
