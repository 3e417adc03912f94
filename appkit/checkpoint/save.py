"""Take a checkpoint: every process writes its parts, then rank 0 publishes them all."""

import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

from pliant.appkit.checkpoint.store import CheckpointStore, Manifest
from pliant.appkit.coordinator.messages import CheckpointOrder, CheckpointReport
from pliant.appkit.coordinator.suspension import SuspensionHandler
from pliant.appkit.environment import Environment
from pliant.appkit.kinds.all_job_data import JobData
from pliant.appkit.kinds.state import pack
from pliant.appkit.loops import Position
from pliant.appkit.storage.checkpoint_key import key_source
from pliant.appkit.storage.chunks import ArrayWriter, SavedArray
from pliant.appkit.storage.private_folders import PrivateFolder
from pliant.core.model.checkpoint import SaveWord

#: For each registered array, the pieces that one process has written.
_Written = list[list[SavedArray]]


class Checkpoints:
    """Takes the checkpoints of the job; disabled if there is no folder for them."""

    def __init__(self, data: JobData, folder: Path | None, environment: Environment | None) -> None:
        """Save into ``folder``; None disables checkpoints.

        Args:
            data: all that the program has registered.
            folder: of the job's checkpoints.
            environment: None in an ordinary MPI program.
        """
        self._run = environment.run if environment else 0
        key = key_source(environment.checkpoint_key_file if environment else "")
        self.store = CheckpointStore(folder, self._run, key) if folder is not None else None
        #: Whether the program wants a checkpoint at its next safe point.
        self.is_requested = False
        self._data = data
        self._member = data.membership
        self._job = environment.job if environment else 0
        self._warned = False

    @property
    def is_enabled(self) -> bool:
        """Whether this job has a folder in which it can save checkpoints."""
        return self.store is not None

    def request(self) -> None:
        """Request a checkpoint at the next safe point."""
        self.is_requested = self.is_enabled

    def execute(
        self,
        order: CheckpointOrder,
        position: Position,
        once: list[bytes],
        suspension: SuspensionHandler | None,
    ) -> bool:
        """Take a checkpoint, unless its suspension was withdrawn; collective over the job.

        Args:
            order: the same on all processes.
            position: the present loop and iteration.
            once: encoded results of ``job.once``.
            suspension: of the coordinator on rank 0; None elsewhere.

        Returns:
            Whether the processes leave now, because all is saved and the server knows.
        """
        raw = self._member.raw
        assert raw is not None
        raw.Barrier()
        begins = not order.leaves
        if suspension is not None and order.leaves:
            begins = suspension.begin(order.number)
        if not raw.bcast(begins, root=0):
            return False
        report = self.save(order, position, once)
        if suspension is not None:
            suspension.finish(report)
        if report.word is SaveWord.FAILED:
            if self._member.rank == 0:
                self._warn(report)
            return False
        if order.leaves:
            if suspension is not None:
                suspension.wait_for_leave()
            raw.Barrier()
        return order.leaves

    def save(
        self, order: CheckpointOrder, position: Position, once: list[bytes]
    ) -> CheckpointReport:
        """Save all registered data; collective over the job.

        Returns:
            A report with SAVED or FAILED. Only rank 0 gets the reason of a failure.
        """
        self.is_requested = False
        begin = time.perf_counter()
        raw, store = self._member.raw, self.store
        assert raw is not None
        if store is None:
            return CheckpointReport(
                order.number, SaveWord.FAILED, "it has no folder for checkpoints"
            )
        error, size = "", 0
        number, error = raw.bcast(_begin(store) if raw.rank == 0 else None, root=0)
        written: _Written = []
        if not error:
            written, error = self._write(store, number)
        everything = raw.gather(([_plain(own) for own in written], error), root=0)
        if everything is not None:
            error = next((fault for _, fault in everything if fault), "")
            if not error:
                parts = [[_pieces(own) for own in each] for each, _ in everything]
                size, error = self._publish(number, parts, position, once)
            if error and number:
                store.drop(number)
        saved = raw.bcast(not error, root=0)
        seconds = time.perf_counter() - begin
        word = SaveWord.SAVED if saved else SaveWord.FAILED
        return CheckpointReport(order.number, word, error, position.iteration, size, seconds)

    def _warn(self, report: CheckpointReport) -> None:
        """Tell the user on stderr, at the first failure only."""
        if not self._warned:
            self._warned = True
            print(f"pliant: no checkpoint was taken: {report.reason}", file=sys.stderr, flush=True)

    def _write(self, store: CheckpointStore, number: int) -> tuple[_Written, str]:
        """Write the parts of this process; return the pieces of each array, and an error text."""
        try:
            with store.open_data(number) as folder:
                return self._write_into(folder), ""
        except Exception as error:  # a kind's own code may raise anything
            return [], f"rank {self._member.rank}: {type(error).__name__}: {error}"

    def _write_into(self, folder: PrivateFolder) -> _Written:
        rank, written = self._member.rank, []
        for place, entry in enumerate(self._data.registry):
            out = ArrayWriter(folder, f"rank{rank}-{place}.bin", rank)
            try:
                entry.save(out)
            finally:
                out.close()
            written.append(out.arrays)
        folder.sync()
        return written

    def _publish(
        self, number: int, written: list[_Written], position: Position, once: list[bytes]
    ) -> tuple[int, str]:
        """Publish the checkpoint; return the bytes of the arrays, and an error text."""
        assert self.store is not None
        try:
            manifest = Manifest(
                number=number,
                job=self._job,
                run=self._run,
                epoch=self._member.allocation[0],
                size=self._member.size,
                time=time.time(),
                position=position,
                registry=self._data.description(),
                states=pack(self._data.states),
                once=tuple(once),
                pieces=tuple(tuple(chain(*own)) for own in zip(*written, strict=True)),
            )
            self.store.publish(manifest)
        except Exception as error:  # a value's own code may raise anything when it is pickled
            return 0, f"{type(error).__name__}: {error}"
        return manifest.data_bytes, ""


def _plain(pieces: list[SavedArray]) -> list[Any]:
    """Return pieces as plain data: another process may be of another version."""
    return [piece.to_json() for piece in pieces]


def _pieces(told: list[Any]) -> list[SavedArray]:
    return [SavedArray.from_json(each) for each in told]


def _begin(store: CheckpointStore) -> tuple[int, str]:
    try:
        return store.begin(), ""
    except OSError as error:
        return 0, str(error)
