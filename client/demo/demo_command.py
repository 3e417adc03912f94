"""``pliant demo``: a cluster, jobs that change size while they run, and a check of all of it."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec

from pliant.charts.history_timeline import Recording
from pliant.charts.output.files import encoded, missing_for
from pliant.charts.timeline import draw_timeline
from pliant.client.client_errors import ClientError, NoServerError, RequestError
from pliant.client.cluster import process_table
from pliant.client.cluster.cluster_spec import ClusterSpec
from pliant.client.cluster.daemons import tail
from pliant.client.cluster.dashboard_process import DashboardProcess
from pliant.client.cluster.local_cluster import LocalCluster
from pliant.client.cluster.shutdown import stop
from pliant.client.demo import checks
from pliant.client.demo.scenario import NODES, PROGRAM, SLOTS, Scenario, StepError
from pliant.client.demo.view import DemoDisplay
from pliant.client.terminal.event_text import timeline
from pliant.client.terminal.interrupts import Interrupted, Interrupts
from pliant.client.terminal.output import (
    INTERRUPTED,
    Parser,
    check_writable,
    print_error,
    run_command,
)

PROG = "pliant demo"

#: Seconds in which the jobs must have ended.
_DEADLINE_S = 55.0
#: The problem of every run. `pause_s` and `work_s` sleep, so that two cores can act as a cluster.
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
    """Show jobs that change size on a cluster of this machine, and check the results."""
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
        "--events", metavar="FILE", help="write the history, for `pliant gantt --result FILE`"
    )
    parser.add_argument(
        "--transport", choices=("ofi", "ucx"), default="ofi", help="what MPI talks over (ofi)"
    )
    parser.add_argument("--open", action="store_true", help="open the live page in a browser")
    parser.add_argument("--keep", action="store_true", help="keep its directory: logs, outputs")
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    check_writable(options.output)
    if options.events is not None:
        check_writable(options.events)
    if (missing := missing_for(options.output)) is not None:
        raise ClientError(f"-o {options.output}: {missing}")
    process_table.adopt_orphans()
    with Interrupts() as interrupts:
        with interrupts.shielded():
            demo = Demo(options, interrupts)
        try:
            demo.run()
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
    """One run of the demo, in its own directory."""

    def __init__(self, options: argparse.Namespace, interrupts: Interrupts) -> None:
        self._options, self._interrupts = options, interrupts
        self.checks = checks.Checks()
        self.directory = tempfile.mkdtemp(prefix="pliant-demo-")
        self._sockets: list[str] = []
        self._leftovers: list[str] = []
        self._shared_memory = checks.SharedMemory(self.directory)
        self._leaked: list[str] = []
        self._alone: subprocess.Popen[bytes] | None = None
        self._dashboard: DashboardProcess | None = None
        self._cluster = LocalCluster(
            os.path.join(self.directory, "state"), os.path.join(self.directory, "run")
        )

    def run(self) -> None:
        """Start the cluster, run the scenario, show the course of events and check the results."""
        with DemoDisplay() as view:
            try:
                scenario = self._run_scenario(view)
            except ClientError as error:
                self._report_failure("the story", str(error), None)
                return
        names, events = scenario.names, scenario.snapshot.events
        print("\n" + timeline(events, names, start=scenario.begin) + "\n", flush=True)
        if self._options.events is not None:
            with open(self._options.events, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(event) + "\n" for event in events)
        recording = Recording()
        for event in events:
            recording.apply(event)
        drawing = draw_timeline(recording.timeline("pliant demo", nodes=scenario.snapshot.nodes))
        with open(self._options.output, "wb") as picture:
            picture.write(encoded(drawing, self._options.output))
        print(f"the picture is in {self._options.output}\n", flush=True)
        self._check_results(scenario)

    def _run_scenario(self, view: DemoDisplay) -> Scenario:
        view.say(f"starting a server and {NODES} nodes with {SLOTS} processors each")
        self._write_settings()
        with self._interrupts.shielded():
            self._cluster.configure(ClusterSpec(NODES, SLOTS, transport=self._options.transport))
            self._cluster.start_missing()
            self._start_alone()
        self._cluster.wait_up(lambda _: None)
        self._start_dashboard(view)
        scenario = Scenario(self.directory, self._cluster.run, view, _DEADLINE_S - view.elapsed_s)
        scenario.on_refresh = self._shared_memory.note
        try:
            scenario.run()
        except (StepError, NoServerError, RequestError) as error:
            self._report_failure("the story", str(error), scenario)
        return scenario

    def _start_dashboard(self, view: DemoDisplay) -> None:
        """Start the live page if its packages are installed, and print its address."""
        if not self._options.open and find_spec("starlette") is None:
            return
        with self._interrupts.shielded():
            cluster = self._cluster
            self._dashboard = DashboardProcess(cluster.state, cluster.run, opens=self._options.open)
        try:
            view.say(self._dashboard.addresses()[0])
        except ClientError as error:
            view.say(str(error))

    def _write_settings(self) -> None:
        for name, settings in _RUNS.items():
            lines = [f"{key}: {value}" for key, value in (_PROBLEM | settings).items()]
            path = os.path.join(self.directory, f"{name}.yaml")
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")

    def _start_alone(self) -> None:
        """Start the program heat outside of the cluster, as a process that is not resized.

        Its checksum is later compared with that of the run that was resized.
        """
        with open(os.path.join(self.directory, "alone.out"), "wb") as output:
            self._alone = subprocess.Popen(
                [sys.executable, "-P", "-m", PROGRAM, os.path.join(self.directory, "alone.yaml")],
                cwd=self.directory,
                env=self._cluster.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _report_failure(self, what: str, reason: str, scenario: Scenario | None) -> None:
        self.checks.check(what, reason)
        if scenario is not None:
            print(scenario.reasons())
        for daemon in self._cluster.daemons:
            print(f"--- {daemon.log}\n{daemon.tail()}")

    def _check_results(self, scenario: Scenario) -> None:
        check = self.checks.check
        shrinks, expansions = checks.resizes(scenario.snapshot.events)
        check(f"jobs shrank ({shrinks} times)", "" if shrinks else "no job did")
        check(f"jobs expanded ({expansions} times)", "" if expansions else "no job did")
        fault = checks.compare(self._reference(), checks.checksum(scenario.output("heat")))
        check("heat's result is the one of a run alone, bit by bit", fault)
        try:
            used = scenario.wait_idle()
            check("every processor came back", f"{used} are still in use" if used else "")
        except (NoServerError, RequestError) as error:
            check("every processor came back", str(error))
        scenario.close()

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
            return checks.checksum(file.read())

    def clean_up(self) -> list[int]:
        """Stop the cluster and the page; return the ids of processes that still exist."""
        self._shared_memory.note(now=True)
        if self._dashboard is not None:
            self._dashboard.stop()
        stop(self._cluster, lambda _: None)
        if self._alone is not None and self._alone.poll() is None:
            process_table.terminate([self._alone.pid], 1.0)
        left = process_table.wait_gone(checks.processes_naming(self.directory), 3.0)
        self._leftovers = [f"{pid} ({' '.join(process_table.command_line(pid))})" for pid in left]
        left = process_table.terminate(left, 1.0)
        for child in (self._alone, *(daemon.process for daemon in self._cluster.daemons)):
            if child is not None and child.poll() is None and child.pid not in left:
                child.wait(timeout=5)
        deadline = time.monotonic() + 2.0
        while process_table.reap_children() or (checks.zombies() and time.monotonic() < deadline):
            time.sleep(0.01)
        self._sockets = checks.sockets(self.directory)
        self._leaked = self._shared_memory.remove_leaked()
        if self._options.keep:
            print(f"kept: {self.directory}")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)
        return left

    def check_leftovers(self, left: list[int]) -> None:
        """Check that no process, file or shared memory of the demo is left on this machine.

        ``left`` has the ids of processes that still exist, as `clean_up` returns them.
        """
        check = self.checks.check
        check("no process is left", checks.shorten_list(self._leftovers or left))
        check("no zombie is left", checks.shorten_list(checks.zombies()))
        check("no socket is left", checks.shorten_list(self._sockets))
        check("no shared memory is left", checks.shorten_list(self._leaked))
        if not self._options.keep:
            there = os.path.exists(self.directory)
            check("its directory is gone", self.directory if there else "")
        if self.checks.failed:
            print_error(
                PROG, f"{len(self.checks.failed)} checks failed: {', '.join(self.checks.failed)}"
            )
        else:
            print("all checks held")


if __name__ == "__main__":
    sys.exit(main())
