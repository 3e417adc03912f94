"""Every MPI operation on grown and shrunk communicators: a table of what works on which layout.

A layout is a number of nodes and of processors of each node. A malleable job runs the list of
`benchmarks/apps/operations` at its first size, after one growth, after a second one (so that its
communicator joins three groups of processes that were started separately), and after a shrink. An
operation that takes longer than its limit counts as hanging: the job is started again without it.

    python benchmarks/bench_operations.py [--transport ofi|ucx] [--layout NODESxSLOTS]... [--all]
                                          [NAME=VALUE...]

The table is printed as Markdown: `ok`, `error` (the operation is not supported and raises an error
on all ranks), HANGS, or what is wrong. A line for each operation with --all, otherwise one for each
group and those operations that do not work everywhere. NAME=VALUE is added to the job's
environment.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from benchkit import APPS, cluster

from pliant.client.api import Client
from pliant.client.client_errors import RequestError

#: Nodes and processors of each.
LAYOUTS = ("1x6", "3x3", "4x2", "6x1")
#: Sizes of the job, one after the other.
SIZES = (2, 5, 6, 3)
#: What the communicator is after as many resizes.
PHASES = ("at the start", "grown", "grown twice", "shrunk")
#: For one operation. Nothing in the list takes a second on an idle machine.
LIMIT_S = 20.0

PROGRAM = APPS / "operations"
#: (phase, title) to its result.
Results = dict[tuple[int, str], str]


def listed() -> dict[str, str]:
    """Return a mapping from the title of each benchmarked operation to its group in the table."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--list"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{PROGRAM}: the list is not complete: {done.stderr}")
    return {title: group for group, title in (x.split("\t") for x in done.stdout.splitlines())}


def resize(client: Client, job: int, size: int) -> None:
    """Request a resize as soon as the job accepts one; do nothing if the job has ended."""
    while not client.job(job).final:
        try:
            client.resize(job, size)
        except RequestError:  # not registered yet, or busy
            time.sleep(0.05)
        else:
            return


def attempt(client: Client, out: Path, skipped: list[str], env: dict[str, str]) -> Results:
    """Run the operations at all sizes, until one hangs or ends the job; return the results."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    job = client.submit(
        *(sys.executable, str(PROGRAM), str(out), *skipped),
        sizes=f"{min(SIZES)}-{max(SIZES)}",
        prefer=SIZES[0],
        chdir=str(out),
        stdout=str(out / "log"),
        env={**os.environ, **env, "PLIANT_OPERATION_LIMIT_S": str(LIMIT_S)},
    )
    results = out / "results"

    def text() -> str:
        return results.read_text() if results.exists() else ""

    for phase, size in enumerate(SIZES):
        if phase:
            resize(client, job, size)
        while f"{phase}\t{size}\tdone\n" not in text() and not client.job(job).final:
            time.sleep(0.05)
        if client.job(job).final:
            break
    (out / "stop").touch()
    ended = client.wait(job)
    found: Results = {}
    for line in text().splitlines():
        number, _size, title, *result = line.split("\t")
        if result:
            found[int(number), title] = result[0]
    if ended.state != "COMPLETED":
        if not (out / "running").exists():
            raise SystemExit(f"{ended.reason}: {(out / 'log').read_text()}")
        number, _size, title = (out / "running").read_text().split("\t")
        done = (int(number), title) in found
        log = (out / "log").read_text()
        why = "HANGS" if "Timeout (" in log else f"ENDS THE JOB: {ended.reason}"
        print(f"# {title} after {number} resizes: {why}", file=sys.stderr)
        if done:
            raise SystemExit(f"the job ended after {title}: {ended.reason}\n{log[-3000:]}")
        found[int(number), title] = why
    return found


def measure(layout: str, transport: str, env: dict[str, str]) -> Results:
    """Return the results on one layout (``NODESxSLOTS``).

    After an operation that hangs or ends the job, the list is run again without this operation.
    """
    nodes, slots = map(int, layout.split("x"))
    all_found: Results = {}
    skipped: list[str] = []
    options = ("--strategy", "fcfs", "--transport", transport)
    with cluster(nodes, slots, *options) as (client, out):
        while True:
            since = time.monotonic()
            found = attempt(client, out / "run", skipped, env)
            all_found |= found
            ended = ("HANGS", "ENDS THE JOB")
            bad = [title for (_, title), result in found.items() if result.startswith(ended)]
            if not bad:
                took = time.monotonic() - since
                print(f"# {transport} {layout}: {took:.1f} s for all", file=sys.stderr)
                return all_found
            skipped += bad


def _cell(result: str) -> str:
    return "error" if result.startswith("unsupported") else result


def table(results: dict[str, Results], groups: dict[str, str], every: bool) -> list[str]:
    """Return the lines of a table in Markdown; with ``every``, one line for each operation."""
    columns = [(layout, phase) for layout in results for phase in range(1, len(PHASES))]
    heads = [f"{layout} {PHASES[phase]}" for layout, phase in columns]
    lines = ["| operation | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    by_group: dict[str, list[str]] = defaultdict(list)
    for title, group in groups.items():
        by_group[group].append(title)
    for group, titles in by_group.items():
        good = 0
        rows = []
        for title in titles:
            cells = [_cell(results[layout].get((phase, title), "?")) for layout, phase in columns]
            fine = all(cell == "ok" for cell in cells)
            good += fine
            if every or not fine:
                rows.append(f"| {title} | " + " | ".join(cells) + " |")
        lines.append(f"| **{group}**: {good} of {len(titles)} " + "| " * len(heads) + "|")
        lines += rows
    return lines


def main() -> int:
    """Run all operations on each layout of nodes, and print a table; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", default="ofi", choices=("ofi", "ucx"))
    parser.add_argument("--layout", action="append", metavar="NODESxSLOTS")
    parser.add_argument("--all", action="store_true", help="a line for each operation")
    parser.add_argument("env", nargs="*", metavar="NAME=VALUE")
    given = parser.parse_args()
    env = dict(item.split("=", 1) for item in given.env)
    groups = listed()
    results = {layout: measure(layout, given.transport, env) for layout in given.layout or LAYOUTS}
    print("\n".join(table(results, groups, given.all)))
    every = [result for found in results.values() for result in found.values()]
    return int(any(not result.startswith(("ok", "unsupported")) for result in every))


if __name__ == "__main__":
    raise SystemExit(main())
