"""Take a checkpoint: every process writes its parts, then rank 0 publishes them all."""

import sys
import time
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from pliant.appkit.checkpoint.store import CheckpointStore, Manifest
from pliant.appkit.coordinator.messages import CheckpointOrder, CheckpointReport
from pliant.appkit.coordinator.suspension_orders import SuspensionHandler
from pliant.appkit.environment import Environment
from pliant.appkit.kinds.replicated_values import pack
from pliant.appkit.loops import Position
from pliant.appkit.registered_objects import JobData
from pliant.appkit.storage.array_files import ArrayWriter, SavedArray
from pliant.appkit.storage.checkpoint_signature import key_source
from pliant.appkit.storage.private_folders import PrivateFolder
from pliant.core.model.checkpoint import SaveProgress

#: For each registered array, the pieces that one process has written, as `SavedArray.to_json`
#: returns them: another process may run another version.
_Written = list[list[list[Any]]]


class Checkpoints:
    """Takes the checkpoints of the job; disabled if there is no folder for them."""

    def __init__(self, data: JobData, folder: Path | None, environment: Environment | None) -> None:
        """Store where checkpoints are saved.

        Args:
            data: all that the program has registered.
            folder: the folder of the job's checkpoints; None if none can be taken.
            environment: the job's number, run and key, as the node describes them to this process;
                None in an ordinary MPI program, which Pliant has not started.
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
        """Return whether this job has a folder in which it can save checkpoints."""
        return self.store is not None

    def request(self) -> None:
        """Request a checkpoint at the next safe point; do nothing if there is no folder for it."""
        self.is_requested = self.is_enabled

    def execute(
        self,
        order: CheckpointOrder,
        position: Position,
        once: list[bytes],
        suspension: SuspensionHandler | None,
    ) -> bool:
        """Take a checkpoint, unless it is for a suspension that was withdrawn; collective.

        Args:
            order: the reason for the checkpoint: a suspension, or a request of the program. It is
                equal on all processes.
            position: the present loop and iteration.
            once: encoded results of ``job.once``.
            suspension: on rank 0, the coordinator's handler of suspensions; None on other ranks.

        Returns:
            Whether the processes leave now: the job is suspended, and the server has confirmed that
            everything is saved.
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
        if report.progress is SaveProgress.FAILED:
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

        Rank 0 begins the checkpoint, all ranks write their parts, and rank 0 publishes it. Each
        step returns an error text and raises nothing: a rank that left this function early would
        leave the others waiting in the next collective operation.

        Args:
            order: has the number of the suspension for which the checkpoint is taken; 0 if there is
                none.
            position: the loop and iteration at which the job will continue.
            once: encoded results of ``job.once``.

        Returns:
            A report with SAVED or FAILED. Only rank 0 gets the reason of a failure.
        """
        self.is_requested = False
        begin = time.perf_counter()
        raw, store = self._member.raw, self.store
        assert raw is not None
        if store is None:
            return CheckpointReport(
                order.number, SaveProgress.FAILED, "it has no folder for checkpoints"
            )
        size, written = 0, _Written()
        number, error = raw.bcast(_begin(store) if raw.rank == 0 else None, root=0)
        if not error:
            written, error = self._write(store, number)
        gathered = raw.gather((written, error), root=0)
        if gathered is not None:
            error = next((fault for _, fault in gathered if fault), "")
            if not error:
                parts = [pieces for pieces, _ in gathered]
                size, error = self._publish(store, number, parts, position, once)
            if error and number:
                _drop(store, number)
        saved = raw.bcast(not error, root=0)
        seconds = time.perf_counter() - begin
        progress = SaveProgress.SAVED if saved else SaveProgress.FAILED
        return CheckpointReport(order.number, progress, error, position.iteration, size, seconds)

    def _warn(self, report: CheckpointReport) -> None:
        """Print the reason of a failed checkpoint on stderr, at the first failure only."""
        if not self._warned:
            self._warned = True
            print(f"pliant: no checkpoint was taken: {report.reason}", file=sys.stderr, flush=True)

    def _write(self, store: CheckpointStore, number: int) -> tuple[_Written, str]:
        """Write this process's parts of all registered data.

        Returns:
            For each registered object, the records of the pieces that were written; and an error
            text, empty if all were written.
        """
        try:
            with store.open_data(number) as folder:
                return self._write_into(folder), ""
        except Exception as error:  # a kind's own code may raise anything
            return [], f"rank {self._member.rank}: {_text(error)}"

    def _write_into(self, folder: PrivateFolder) -> _Written:
        rank, written = self._member.rank, _Written()
        for place, entry in enumerate(self._data.registry):
            out = ArrayWriter(folder, f"rank{rank}-{place}.bin", rank)
            try:
                entry.save(out)
            finally:
                out.close()
            written.append([piece.to_json() for piece in out.arrays])
        folder.sync()
        return written

    def _publish(
        self,
        store: CheckpointStore,
        number: int,
        parts: list[_Written],
        position: Position,
        once: list[bytes],
    ) -> tuple[int, str]:
        """Make the checkpoint valid, once all ranks have written their parts; called on rank 0.

        Args:
            store: the folder of checkpoints.
            number: the number of the checkpoint.
            parts: the records that `_write` returned on each rank.
            position: the loop and iteration at which the job will continue.
            once: encoded results of ``job.once``.

        Returns:
            The size of all saved arrays in bytes; and an error text, empty if it worked.
        """
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
                pieces=tuple(
                    tuple(map(SavedArray.from_json, chain(*own)))
                    for own in zip(*parts, strict=True)
                ),
            )
            store.publish(manifest)
        except Exception as error:  # a value's own code may raise anything when it is pickled
            return 0, _text(error)
        return manifest.data_bytes, ""


def _begin(store: CheckpointStore) -> tuple[int, str]:
    """Create the folder of the next checkpoint.

    Returns:
        The number of the checkpoint; and an error text, empty if the folder was created.
    """
    try:
        return store.begin(), ""
    except OSError as error:  # its text says what is wrong with the folder
        return 0, str(error) or _text(error)
    except Exception as error:  # the manifest of the last checkpoint and the key are read, too
        return 0, _text(error)


def _drop(store: CheckpointStore, number: int) -> None:
    """Remove the files of a failed checkpoint; an error while removing them is ignored."""
    with suppress(Exception):
        store.drop(number)


def _text(error: Exception) -> str:
    """Return type and text of an error."""
    return f"{type(error).__name__}: {error}"
