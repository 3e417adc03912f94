"""A cluster on which faults happen, and a job on it that must not notice."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from clusterkit.afterwards import at_rest
from clusterkit.cluster import Cluster, gone, zombies_below
from clusterkit.logs import Logs
from faultkit.cases import FULL_S
from pliant.client.api import Client
from pliant.client.demo.checks import segments_of
from testkit import leaks, wait_until
from testkit.processes import children
from testkit.repository import ROOT

CARRIER = ROOT / "tests" / "faults" / "apps" / "carrier.py"
SHARED_MEMORY = Path("/dev/shm")

#: Long enough for a loaded machine, short enough for hundreds of cases. Accept and Connect wait
#: for 10 s, after which an application rolls back: the deadline is a little longer.
SETTINGS = """
debug: true
offer_timeout_s: 3
prepare_timeout_s: 15
safe_point_timeout_s: 6
resize_deadline_s: 13
kill_grace_s: 0.5
quiet_s: 600
"""
#: What is asked for is there in this time after the last deadline, seconds.
PATIENCE_S = 60.0


class Carrier:
    """The program whose numbers are all different, as a job."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        size: int,
        *,
        orders: str = "",
        client: Client | None = None,
    ) -> None:
        folder.mkdir()
        self.cluster, self.folder = cluster, folder
        self.name, self.output = f"{folder.parent.name}-{folder.name}", folder / "out"
        env = {name: value for name, value in os.environ.items() if name != "PLIANT_FAILPOINTS"}
        if orders:
            env["PLIANT_FAILPOINTS"] = orders
        self.id = (client or cluster.client).submit(
            sys.executable,
            str(CARRIER),
            str(folder),
            sizes="1-5",
            prefer=size,
            type="mpi",
            name=self.name,
            stdout=str(self.output),
            env=env,
        )

    def beat(self) -> tuple[int, int, float]:
        """The step that it is in, its size, and the longest time between two steps."""
        try:
            step, size, longest = (self.folder / "beat").read_text().split()
        except (FileNotFoundError, ValueError):
            return -1, 0, 0.0
        return int(step), int(size), float(longest)

    def goes_on(self) -> None:
        """Wait until it has done more steps."""
        step = self.beat()[0]
        wait_until(lambda: self.beat()[0] > step + 1, what=f"job {self.id} to go on")

    def finish(self) -> None:
        """Have it end; its numbers were right to the last."""
        (self.folder / "stop").touch()
        self.cluster.wait_for(self.id, lambda job: job.final, f"job {self.id} to end")
        job = self.cluster.client.job(self.id)
        assert (job.state, job.exit_code) == ("COMPLETED", 0), self.cluster.report(self.id)
        assert "right to the end" in self.output.read_text()


class Bed:
    """Three nodes with two slots each, on one of which another job runs."""

    def __init__(self, cluster: Cluster, base: Path, earlier: set[psutil.Process]) -> None:
        """Start the other job.

        Args:
            cluster: a cluster that is up.
            base: the folder for the cases.
            earlier: processes of other tests' fixtures, which may run on.
        """
        self.cluster, self.base, self._earlier = cluster, base, earlier
        self.orders = base / "orders"
        self._number = 0
        self.other = Carrier(cluster, base / "other", 1)
        cluster.wait_malleable(self.other.id)
        self._logs = Logs(cluster.state)

    def folder(self) -> Path:
        """A folder for one case."""
        self._number += 1
        return self.base / f"case{self._number}"

    def tell(self, orders: str) -> None:
        """Give all processes orders, but those of the other job."""
        draft = self.orders.with_suffix(".new")
        draft.write_text(orders)
        draft.rename(self.orders)

    def subject(self, folder: Path, size: int) -> Carrier:
        """The job to which it happens, when it has registered."""
        job = Carrier(self.cluster, folder, size, orders=f"@{self.orders}")
        self.cluster.wait_malleable(job.id)
        wait_until(lambda: job.beat()[0] > 1, what="its first steps")
        return job

    def mend(self) -> None:
        """Bring back daemons that have ended."""
        names = [path.stem for path in self.cluster.run.glob("*.pid")]
        if self.cluster.missing or len(names) < 4 or not all(map(self._runs, names)):
            self.cluster.up()

    def _runs(self, name: str) -> bool:
        try:
            return not gone(self.cluster.daemon(name))
        except (OSError, LookupError, ValueError, psutil.NoSuchProcess):
            return False

    def give_back(self, since: float) -> None:
        """Let nodes that could start nothing have work when their disk has room again."""
        for node in self.cluster.client.nodes():
            if "cannot start jobs" in node.reason:
                time.sleep(max(0.0, since + FULL_S - time.monotonic()))
                self.cluster.client.resume(node.name)

    def check_whole(self, acknowledged: Collection[tuple[int, str]] = ()) -> None:
        """Nothing is left of the last case: processors, processes, segments, words in the logs.

        What its users were told are the numbers and the names of their jobs.
        """
        cluster, client = self.cluster, self.cluster.client
        wait_until(lambda: sum(n.used for n in client.nodes()) == 1, what="free processors")
        wait_until(lambda: {n.state for n in client.nodes()} == {"UP"}, what="nodes that are up")
        at_rest(cluster, acknowledged)
        daemons = list(cluster.daemons().values())
        wait_until(lambda: not zombies_below(daemons), what="no zombies")
        wait_until(lambda: not self._strays(), what="no processes of nobody")
        wait_until(lambda: not self._segments(), what="no segments")
        assert client.job(self.other.id).state == "RUNNING"
        self.other.goes_on()
        self._logs.check("could not")  # the server looks for its invariants after every event

    def _strays(self) -> list[str]:
        """Processes that are neither a daemon, nor the other job, nor its shim."""
        ours = self._earlier | set(self.cluster.daemons().values())
        for rank in self.cluster.ranks(self.other.id):
            ours |= {rank.process, *rank.process.parents()}
        ours |= {child for daemon in list(ours) for child in self._children(daemon)}
        return [leaks.describe(process) for process in leaks.session_processes() - ours]

    @staticmethod
    def _children(daemon: psutil.Process) -> list[psutil.Process]:
        """What a daemon keeps for itself: a worker for strategies, say; no shims."""
        try:
            return [child for child in children(daemon) if child.name() != "shim"]
        except psutil.NoSuchProcess:
            return []

    def _segments(self) -> list[str]:
        kept = segments_of(rank.process.pid for rank in self.cluster.ranks(self.other.id))
        return [name for name in self.cluster.segments - kept if (SHARED_MEMORY / name).exists()]


@contextmanager
def bed(transport: str) -> Iterator[Bed]:
    """Give a cluster of one transport; whatever happened, nothing of it is left afterwards."""
    base = Path(tempfile.mkdtemp(prefix="pliant-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIANT_STATE_DIR", str(base / "state"))
        patch.setenv("PLIANT_RUN_DIR", str(base / "run"))
        patch.setenv("PLIANT_FAILPOINTS", f"@{base / 'orders'}")
        if transport != "ofi":
            patch.delenv("FI_TCP_IFACE", raising=False)
        patch.setenv("MPIR_CVAR_CH4_NETMOD", transport)
        (base / "server.yaml").write_text(f"{SETTINGS}transport: {transport}\n")
        cluster = Cluster(base, nodes=3, slots=2, strategy="fcfs")
        cluster.shape += ["--config", str(base / "server.yaml")]
        earlier = leaks.session_processes()
        cluster.up()
        leaks.SHARED.add(str(cluster.state))
        try:
            yield Bed(cluster, base, earlier)
        finally:
            leaks.SHARED.remove(str(cluster.state))
            (base / "orders").write_text("")
            cluster.down()
    shutil.rmtree(base)


class Beds:
    """Beds that are used again until something on one of them was not well."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._bed: Bed | None = None
        self._transport = ""

    @contextmanager
    def use(self, transport: str) -> Iterator[Bed]:
        """Give a bed of a transport."""
        if self._bed is None or transport != self._transport:
            self.close()
            self._bed, self._transport = self._stack.enter_context(bed(transport)), transport
        try:
            yield self._bed
        except BaseException:
            self.close(well=False)
            raise

    def close(self, *, well: bool = True) -> None:
        """Take the bed down; the other job was right to the end."""
        used, self._bed = self._bed, None
        try:
            if used is not None and well:
                used.other.finish()
        finally:
            self._stack.close()
