"""What a cluster has left behind for whoever looks from outside, without asking it.

Three witnesses: the job database, the spools of the controllers, and the processes of this machine.
Nothing here goes through the server, so that a server which is wrong cannot hide it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from testkit.processes import with_variable


@dataclass(frozen=True)
class JobRow:
    """A job as it is stored."""

    id: int
    uid: int
    state: str
    run: int
    epoch: int
    key: str | None
    exit_code: int | None
    record: dict[str, Any]

    @property
    def name(self) -> str:
        """What its user calls it."""
        return str(self.record["name"])

    @property
    def held(self) -> frozenset[int]:
        """The processors that are its own, also those of joining ranks and leavers."""
        return frozenset(self.record["held"])

    @property
    def allocation(self) -> list[int]:
        """The processors of its ranks, or of those it had last."""
        return list(self.record["ranks"])

    @property
    def path(self) -> list[str]:
        """The states that it has been in; the oldest may be forgotten."""
        return [step.split()[1].rstrip(":") for step in self.record["story"]]


@dataclass(frozen=True)
class NodeRow:
    """A node as it is stored."""

    name: str
    first: int
    slots: int
    state: str = "UP"
    #: The lost node whose place a spare one takes.
    stands_in: str = ""

    @property
    def processors(self) -> frozenset[int]:
        """Its processors."""
        return frozenset(range(self.first, self.first + self.slots))


@dataclass(frozen=True)
class EventRow:
    """A line of history."""

    job: int | None
    kind: str
    data: dict[str, Any]


@dataclass(frozen=True)
class SpooledWorld:
    """A world in the spool of a controller."""

    node: str
    name: str
    job: int
    run: int
    #: Rank and processor.
    ranks: tuple[tuple[int, int], ...]
    #: Ranks whose end is noted.
    ended: frozenset[int]

    @property
    def live(self) -> frozenset[int]:
        """The processors of ranks of which no end is known."""
        return frozenset(place for rank, place in self.ranks if rank not in self.ended)


@dataclass(frozen=True)
class RankProcess:
    """A process of this machine that says it belongs to a job of this cluster."""

    pid: int
    uid: int
    job: int
    run: int
    processor: int


@dataclass(frozen=True)
class Evidence:
    """All of it, at about one moment."""

    integrity: str
    generation: int
    jobs: dict[int, JobRow]
    nodes: dict[str, NodeRow]
    events: list[EventRow]
    #: By (job, run): how the last rank on each processor ended; no code: by a signal.
    codes: dict[tuple[int, int], dict[int, int | None]]
    worlds: list[SpooledWorld]
    generations: dict[str, int]
    processes: list[RankProcess]


def gather(state: Path) -> Evidence:
    """Look at the cluster whose state is in this folder."""
    with closing(sqlite3.connect(f"file:{state / 'pliant.db'}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        database.execute("BEGIN")  # all from one moment
        integrity = database.execute("PRAGMA integrity_check").fetchone()[0]
        meta = dict(database.execute("SELECT key, value FROM meta").fetchall())
        jobs = {row["id"]: _job(row) for row in database.execute("SELECT * FROM job")}
        nodes = {
            row["name"]: NodeRow(
                row["name"],
                row["first"],
                row["slots"],
                row["state"],
                json.loads(row["record"]).get("stands_in", ""),
            )
            for row in database.execute("SELECT * FROM node")
        }
        events = [
            EventRow(row["job"], row["kind"], json.loads(row["data"]))
            for row in database.execute("SELECT * FROM job_event ORDER BY seq")
        ]
        codes: dict[tuple[int, int], dict[int, int | None]] = {}
        for row in database.execute(
            "SELECT job, run, processor, code, signal FROM rank_exit JOIN world ON world = name "
            "ORDER BY at"
        ):
            code = None if row["signal"] else row["code"]
            codes.setdefault((row["job"], row["run"]), {})[row["processor"]] = code
    return Evidence(
        integrity,
        int(meta["generation"]),
        jobs,
        nodes,
        events,
        codes,
        list(_worlds(state)),
        {
            path.parent.name[5:]: int(path.read_text().split()[0])
            for path in state.glob("node-*/generation")
        },
        rank_processes(state),
    )


def rank_processes(state: Path) -> list[RankProcess]:
    """Return the living processes of the jobs of a cluster, descendants of ranks included."""
    found = []
    for process, env in with_variable("PLIANT_PROCESSOR"):
        try:
            if not env.get("PLIANT_TOKEN_FILE", "").startswith(f"{state}/"):
                continue
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            found.append(
                RankProcess(
                    process.pid,
                    process.uids().real,
                    int(env["PLIANT_JOB"]),
                    int(env["PLIANT_RUN"]),
                    int(env["PLIANT_PROCESSOR"]),
                )
            )
        except (psutil.Error, OSError):
            continue  # it has ended, or belongs to somebody else
    return found


def _job(row: sqlite3.Row) -> JobRow:
    return JobRow(
        row["id"],
        row["uid"],
        row["state"],
        row["run"],
        row["epoch"],
        row["submit_key"],
        row["exit_code"],
        json.loads(row["record"]),
    )


def _worlds(state: Path) -> Iterator[SpooledWorld]:
    for path in sorted(state.glob("node-*/spool/[!.]*")):
        try:
            yield _world(path)
        except FileNotFoundError:
            continue  # all of it is acknowledged, and it is being removed


def _world(path: Path) -> SpooledWorld:
    request = json.loads((path / "request.json").read_text())
    ended = set()
    if (path / "exits").exists():
        for line in (path / "exits").read_text().splitlines(keepends=True):
            if line.endswith("}\n"):
                ended.add(json.loads(line)["rank"])
    return SpooledWorld(
        path.parent.parent.name[5:],
        path.name,
        request["job"],
        request["run"],
        tuple((rank, place) for rank, place in request["ranks"]),
        frozenset(ended),
    )
