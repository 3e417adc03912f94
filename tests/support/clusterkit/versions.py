"""Two versions of Pliant for one interpreter: this tree, and a copy that is newer.

Each of them knows keys and messages that the other one does not.

A folder with a package ``pliant`` goes before the installed one if ``PYTHONPATH`` names it. All
daemons of a test get the same folder there, a link that is pointed to one version or the other,
as an installation is replaced in its place.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from testkit.processes import run_python
from testkit.repository import PARTS, ROOT

#: File, text, and what the newer version has instead: renaming a key makes one that only the
#: newer version knows, and one that it lacks.
CHANGES = (
    ("protos/versions.py", "PROTOCOL = 2", "PROTOCOL = 3"),
    # Registration and welcome.
    ("protos/node.proto", "string life = 10;", "string life = 90;"),
    ("protos/node.proto", "string life = 4;", "string life = 94;"),
    # A kind of report that the other side does not know: it goes with each beat.
    ("protos/node.proto", "RanksExited ranks_exited = 5;", "RanksExited ranks_exited = 5;\n"
     "    Beat warmth = 89;"),
    ("nodectl/controller/server_connection/server_stream.py",
     "            self.report(wire.NodeReport(beat=beat))\n",
     "            self.report(wire.NodeReport(warmth=beat))\n"
     "            self.report(wire.NodeReport(beat=beat))\n"),
    ("server/rpc/node_service.py", "if kind is None:", 'if kind in (None, "warmth"):'),
    # The order and the ends in a spool.
    ("nodectl/world_folder.py", "    lease_s: float = 0.0\n", "    contact_lease_s: float = 0.0\n"),
    ("nodectl/controller/start_order.py", "lease_s=order.lease_s",
     "contact_lease_s=order.lease_s"),
    ("nodectl/shim/lease_enforcement.py", "request.lease_s", "request.contact_lease_s"),
    ("nodectl/world_folder.py", "    node_fault: bool = False\n", "    unfit: bool = False\n"),
    ("nodectl/controller/world_state.py", "end.node_fault", "end.unfit"),
    ("nodectl/controller/world_state.py", "time.time(),\n            node_fault=node_fault,",
     "time.time(),\n            unfit=node_fault,"),
    # Jobs in the database.
    ("core/state/json_records.py", '"done": job.done', '"work": job.done'),
    ("core/state/json_records.py", 'record.get("done", 0.0)', 'record.get("work", 0.0)'),
)  # fmt: skip


def make_newer(folder: Path) -> Path:
    """Copy this tree, changed to a newer version, and return what goes to ``PYTHONPATH``."""
    for part in PARTS:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, folder / "pliant" / part, ignore=ignore)
    for name, text, instead in CHANGES:
        path = folder / "pliant" / name
        content = path.read_text()
        assert text in content, f"{name} has no {text!r} any more: adapt the newer version"
        path.write_text(content.replace(text, instead))
    run_python("-m", "pliant.protos.generate", env={"PYTHONPATH": str(folder)}, timeout=120)
    return folder


def make_older(folder: Path) -> Path:
    """Make a folder for ``PYTHONPATH`` that names this tree, and return it."""
    (folder / "pliant").mkdir(parents=True)
    for part in PARTS:
        (folder / "pliant" / part).symlink_to(ROOT / part)
    return folder


def point(link: Path, version: Path) -> None:
    """Have a link name a version from now on."""
    draft = link.with_name(f".{link.name}")
    draft.symlink_to(version)
    draft.replace(link)
