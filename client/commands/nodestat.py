"""``nodestat``: list nodes."""

from __future__ import annotations

import pliant.client.terminal.quick_startup
import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial

from pliant.client.connection import Connection
from pliant.client.terminal.durations import format_bytes, format_time
from pliant.client.terminal.node_names import node_names
from pliant.client.terminal.output import (
    Parser,
    add_watch_options,
    hint_for_slurm_option,
    print_error,
    print_json,
    print_text,
    run_command,
    with_keys_first,
)
from pliant.client.terminal.tables import shorten, table
from pliant.core.support.natural_order import natural_order

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any

PROG = "nodestat"

#: What every object of `--json` holds, in this order; more may follow.
FIELDS = ("name", "state", "reason", "slots", "used", "memory_bytes")

_HEADS = ("node", "cluster", "state", "used", "slots", "memory", "jobs", "reason")


def main(argv: Sequence[str] | None = None) -> int:
    """List nodes and named resources; return the exit code."""
    parser = Parser(
        prog=PROG,
        hints=partial(hint_for_slurm_option, PROG),
        description="List the nodes: all, or those that are named.",
        epilog="exit codes: 0 done, 1 a named node is not known, 2 wrong usage, 3 no server",
    )
    parser.add_argument("names", nargs="*", metavar="node", help="a node, or several: n[01-16]")
    parser.add_argument(
        "-l",
        "--long",
        action="store_true",
        help="also print what keeps jobs within their CPUs, memory, processes and devices, "
        "whether jobs can use the folder of checkpoints, and the memory load",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_watch_options(parser)
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _show(options))


def _show(options: argparse.Namespace) -> int:
    names = node_names(options.names)
    with Connection() as link:
        if options.watch:
            from pliant.client.terminal.alternate_screen import watch

            return watch(lambda: _frame(link.request("nodes"), names), options.every)
        answer = link.request("nodes")
    nodes = _chosen(answer["nodes"], names)
    if options.json:
        print_json([with_keys_first(node, FIELDS) for node in nodes])
    elif nodes or not options.names:
        print_text(nodes_table(nodes))
        if options.long:
            print_text("\n" + "\n".join(map(containment_line, nodes)))
        if answer.get("resources") and not options.names:
            print_text(f"\n{resources_line(answer['resources'])}")
    known = {node["name"] for node in nodes}
    missing = [name for name in names if name not in known]
    for name in missing:
        print_error(PROG, f"there is no node {name}")
    return 1 if missing else 0


def _chosen(nodes: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    chosen = [node for node in nodes if not names or node["name"] in names]
    return sorted(chosen, key=lambda node: natural_order(node["name"]))


def _frame(answer: dict[str, Any], names: Sequence[str]) -> str:
    now = time.time()
    nodes = _chosen(answer["nodes"], names)
    used = sum(node.get("used") or 0 for node in nodes)
    slots = sum(node.get("slots") or 0 for node in nodes if node["state"] != "SPARE")
    head = f"{format_time(now, now)}  {used} of {slots} processors used"
    if answer.get("strategy"):
        head += f", strategy {answer['strategy']}"
    return f"{head}\n\n{nodes_table(nodes)}"


def resources_line(resources: dict[str, dict[str, int]]) -> str:
    """Return how much of each named resource is in use: ``resources: matlab 3 of 4 used``."""
    parts = [f"{name} {each['used']} of {each['total']} used" for name, each in resources.items()]
    return f"resources: {', '.join(parts)}"


def containment_line(node: dict[str, Any]) -> str:
    """Return how a node enforces limits: ``n1: cpus: cpuset, cgroup v1; memory: ...``."""
    found = node.get("containment") or {}
    parts = [f"{what}: {text}" for what, text in found.items()]
    parts = parts or ["containment is not known"]
    if node.get("checkpoints"):
        parts.append(f"checkpoints: {node['checkpoints']}")
    if node.get("reservation"):
        parts.append(node["reservation"])
    if node.get("load"):
        parts.append(_load_text(node["load"]))
    return f"{node['name']}: {'; '.join(parts)}"


def nodes_table(nodes: Sequence[dict[str, Any]]) -> str:
    """Return the nodes as a table."""
    rows: list[tuple[Any, ...]] = [
        (
            node["name"],
            node.get("cluster") or "-",
            node["state"],
            node.get("used") or 0,
            node.get("slots") or 0,
            format_bytes(node.get("memory_bytes")),
            shorten(",".join(map(str, node.get("jobs") or [])) or "-", 40),
            node.get("reason") or "",
        )
        for node in nodes
    ]
    heads = list(_HEADS)
    helpers = [bool(node.get("root_helper")) for node in nodes]
    # Most clusters have no devices and no properties, so the columns are shown only if needed.
    more = {
        # Without any root helper, all jobs run as one account, as on a machine for one user.
        "jobs run as": [
            ("their users" if each else "one account") if any(helpers) else "" for each in helpers
        ],
        # Named only where it is wrong; `--long` says why.
        "checkpoints": [
            "unusable" if node.get("checkpoints") not in (None, "", "shared") else ""
            for node in nodes
        ],
        "reservation": [(node.get("reservation") or "").partition(":")[0] for node in nodes],
        # Normally there are none, except while jobs read files.
        "faults/s": [_faults(node.get("load")) for node in nodes],
        "devices": [_devices(node.get("gres") or {}) for node in nodes],
        "properties": [",".join(node.get("properties") or []) for node in nodes],
    }
    for head, cells in more.items():
        if any(cells):
            heads.insert(-1, head)
            rows = [
                (*row[:-1], cell or "-", row[-1]) for row, cell in zip(rows, cells, strict=True)
            ]
    return table(tuple(heads), rows, right=frozenset({"used", "slots", "memory", "faults/s"}))


def _load_text(load: dict[str, Any]) -> str:
    """Return the memory load of a node for ``--long``: bytes demanded and idle, major faults."""
    if load["stale"]:
        return f"load: not known, last reported {load['age_s']:.0f} s ago"
    parts = [
        f"{format_bytes(load['demand_bytes'])} demanded",
        f"{format_bytes(load['idle_bytes'])} idle",
        f"{load['major_faults_per_s']:.0f} major faults/s",
    ]
    if load["pressure_percent"] is not None:
        parts.append(f"pressure {load['pressure_percent']:.0f} %")
    return f"load: {', '.join(parts)}"


def _faults(load: dict[str, Any] | None) -> str:
    """Return the major page faults per second of a node as text; empty if below 1 or unknown."""
    if not load or load["stale"] or load["major_faults_per_s"] < 1:
        return ""
    return f"{load['major_faults_per_s']:.0f}"


def _devices(gres: dict[str, int]) -> str:
    """Return the generic resources of a node: ``gpu:4,fpga:1``."""
    return ",".join(f"{name}:{number}" for name, number in gres.items() if number)


if __name__ == "__main__":
    sys.exit(main())
