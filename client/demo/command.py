"""``pliant demo``: a cluster, jobs that change size while they run, and a check of all of it."""

from __future__ import annotations

import pliant.client.terminal.quiet  # noqa: F401

# isort: split

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from pliant.client.cluster import process_table
from pliant.client.cluster.cluster_spec import Shape
from pliant.client.cluster.daemons import tail
from pliant.client.cluster.local import LocalCluster
from pliant.client.cluster.shutdown import stop
from pliant.client.demo import checks as look
from pliant.client.demo.play import NODES, PROGRAM, SLOTS, Play, StepError
from pliant.client.demo.view import View
from pliant.client.errors import ClientError, NoServerError, RequestError
from pliant.client.terminal.gantt import gantt_svg
from pliant.client.terminal.interrupts import Interrupted, Interrupts
from pliant.client.terminal.output import INTERRUPTED, Parser, check_place, fail, run_command
from pliant.client.terminal.timeline import timeline

PROG = "pliant demo"

#: Seconds in which the jobs must have ended.
_DEADLINE_S = 55.0
#: The problem of every run; `pause_s` and `work_s` sleep, for two cores are no cluster.
_PROBLEM = {
    "rows": 128,
    "columns": 128,
    "inside": 20.0,
    "edge": "{top: 100.0, bottom: 0.0, left: 50.0, right: 50.0}",
    "tolerance": 0.0,
    "every": 5,
}
_RUNS = {
    "alone": {"iterations": 300, "pause_s": 0.0, "work_s": 0.0},
    "heat": {"iterations": 300, "pause_s": 0.02, "work_s": 0.16},
    "rigid": {"iterations": 100, "pause_s": 0.02, "work_s": 0.16},
    "second": {"iterations": 100, "pause_s": 0.02, "work_s": 0.16},
}


def main(argv: Sequence[str] | None = None) -> int:
    """Watch jobs change size on a cluster of this machine, checked at the end."""
    parser = Parser(
        prog=PROG,
        description="Bring up a cluster of 4 nodes with 2 processors each on this machine, run "
        "jobs that change size while they run, check the results, take everything down.",
        epilog="exit codes: 0 all checks held, 1 one did not, 2 wrong usage, 130 Ctrl-C",
    )
    parser.add_argument(
        "-o",
        "--output",
        default="pliant-demo.svg",
        metavar="FILE",
        help="the picture (%(default)s)",
    )
    parser.add_argument(
        "--transport", choices=("ofi", "ucx"), default="ofi", help="what MPI talks over (ofi)"
    )
    parser.add_argument("--keep", action="store_true", help="keep its directory: logs, outputs")
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    check_place(options.output)
    process_table.adopt_orphans()
    with Interrupts() as interrupts:
        with interrupts.shielded():
            demo = Demo(options, interrupts)
        try:
            demo.perform()
        except Interrupted:
            print("interrupted: taking everything down", file=sys.stderr)
        finally:
            interrupts.ignore()
            left = demo.clean_up()
        if interrupts.number:
            return INTERRUPTED if not left else 1
        demo.check_leftovers(left)
    return 1 if demo.checks.failed else 0


class Demo:
    """One run of it, in a directory of its own."""

    def __init__(self, options: argparse.Namespace, interrupts: Interrupts) -> None:
        self._options, self._interrupts = options, interrupts
        self.checks = look.Checks()
        self.directory = tempfile.mkdtemp(prefix="pliant-demo-")
        self._sockets: list[str] = []
        self._strays: list[str] = []
        self._shared_memory = look.SharedMemory(self.directory)
        self._leaked: list[str] = []
        self._alone: subprocess.Popen[bytes] | None = None
        self._cluster = LocalCluster(
            os.path.join(self.directory, "state"), os.path.join(self.directory, "run")
        )

    def perform(self) -> None:
        """Bring the cluster up, play, tell what happened and check it."""
        with View() as view:
            try:
                play = self._play(view)
            except ClientError as error:
                self._tell_failure("the story", str(error), None)
                return
        names, events = play.names, play.snapshot.events
        print("\n" + timeline(events, names, start=play.begin) + "\n", flush=True)
        picture = gantt_svg(events, play.snapshot.nodes, names=names, title="pliant demo")
        with open(self._options.output, "w", encoding="utf-8") as file:
            file.write(picture)
        print(f"the picture is in {self._options.output}\n", flush=True)
        self._check_results(play)

    def _play(self, view: View) -> Play:
        view.say(f"starting a server and {NODES} nodes with {SLOTS} processors each")
        self._write_settings()
        with self._interrupts.shielded():
            self._cluster.choose(Shape(NODES, SLOTS, transport=self._options.transport))
            self._cluster.start_missing()
            self._start_alone()
        self._cluster.wait_up(lambda _: None)
        play = Play(self.directory, self._cluster.run, view, _DEADLINE_S - view.elapsed_s)
        play.on_look = self._shared_memory.note
        try:
            play.perform()
        except (StepError, NoServerError, RequestError) as error:
            self._tell_failure("the story", str(error), play)
        return play

    def _write_settings(self) -> None:
        for name, settings in _RUNS.items():
            lines = [f"{key}: {value}" for key, value in (_PROBLEM | settings).items()]
            path = os.path.join(self.directory, f"{name}.yaml")
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")

    def _start_alone(self) -> None:
        """Run heat as an ordinary program: its checksum is what the malleable run must give."""
        with open(os.path.join(self.directory, "alone.out"), "wb") as output:
            self._alone = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, os.path.join(self.directory, "alone.yaml")],
                cwd=self.directory,
                env=self._cluster.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _tell_failure(self, what: str, reason: str, play: Play | None) -> None:
        self.checks.check(what, reason)
        if play is not None:
            print(play.reasons())
        for daemon in self._cluster.daemons:
            print(f"--- {daemon.log}\n{daemon.tail()}")

    def _check_results(self, play: Play) -> None:
        check = self.checks.check
        shrinks, expansions = look.resizes(play.snapshot.events)
        check(f"jobs shrank ({shrinks} times)", "" if shrinks else "no job did")
        check(f"jobs expanded ({expansions} times)", "" if expansions else "no job did")
        fault = look.compare(self._reference(), look.checksum(play.output("heat")))
        check("heat's result is the one of a run alone, bit by bit", fault)
        try:
            used = play.settle()
            check("every processor came back", f"{used} are still in use" if used else "")
        except (NoServerError, RequestError) as error:
            check("every processor came back", str(error))
        play.close()

    def _reference(self) -> str:
        path = os.path.join(self.directory, "alone.out")
        try:
            code = self._alone.wait(timeout=10) if self._alone else 1
        except subprocess.TimeoutExpired:
            return ""
        if code:
            print(f"heat alone ended with {code}:\n{tail(path)}")
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return look.checksum(file.read())

    def clean_up(self) -> list[int]:
        """Take everything down and return the processes that are there in spite of it."""
        self._shared_memory.note(now=True)
        stop(self._cluster, lambda _: None)
        if self._alone is not None and self._alone.poll() is None:
            process_table.end([self._alone.pid], 1.0)
        left = process_table.wait_gone(look.carrying(self.directory), 3.0)
        self._strays = [f"{pid} ({' '.join(process_table.words(pid))})" for pid in left]
        left = process_table.end(left, 1.0)
        for child in (self._alone, *(daemon.process for daemon in self._cluster.daemons)):
            if child is not None and child.poll() is None and child.pid not in left:
                child.wait(timeout=5)
        deadline = time.monotonic() + 2.0
        while process_table.collect() or (look.zombies() and time.monotonic() < deadline):
            time.sleep(0.01)
        self._sockets = look.sockets(self.directory)
        self._leaked = self._shared_memory.remove_leaked()
        if self._options.keep:
            print(f"kept: {self.directory}")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)
        return left

    def check_leftovers(self, left: list[int]) -> None:
        """Check that nothing of the demo is left on this machine."""
        check = self.checks.check
        check("no process is left", look.listed(self._strays or left))
        check("no zombie is left", look.listed(look.zombies()))
        check("no socket is left", look.listed(self._sockets))
        check("no shared memory is left", look.listed(self._leaked))
        if not self._options.keep:
            there = os.path.exists(self.directory)
            check("its directory is gone", self.directory if there else "")
        if self.checks.failed:
            fail(PROG, f"{len(self.checks.failed)} checks failed: {', '.join(self.checks.failed)}")
        else:
            print("all checks held")


if __name__ == "__main__":
    sys.exit(main())
