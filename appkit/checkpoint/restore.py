"""Restore a job from a checkpoint: the part of each process when the job is started again.

Like a joining rank, such a process enters ``main`` at the top, skips ``init`` and the finished
loops, and gets its data at the loop that was running. It reads the data from the disk and not from
other processes, and of each array only the part that it owns now.
"""

from typing import Any

from mpi4py import MPI

from pliant.appkit.appkit_errors import CheckpointError
from pliant.appkit.checkpoint.store import CheckpointStore, Manifest, registration_difference
from pliant.appkit.kinds.replicated_values import unpack
from pliant.appkit.loops import Position
from pliant.appkit.mpi.membership import MembershipPhase
from pliant.appkit.registered_objects import JobData
from pliant.appkit.storage.array_files import ArrayReader


def find_restorer(store: CheckpointStore | None, data: JobData) -> "Restorer | None":
    """Return a restorer if this start of the job continues from a checkpoint; None if it does not.

    Collective over the processes with which the job starts.

    Args:
        store: the folder of checkpoints; None if there cannot be a checkpoint.
        data: all that the program registers.

    Raises:
        CheckpointError: there is a checkpoint that cannot be used.
    """
    raw = data.membership.raw
    if store is None or raw is None:
        return None
    manifest = _find(raw, store)
    return Restorer(manifest, store, data) if manifest is not None else None


def _find(comm: MPI.Intracomm, store: CheckpointStore) -> Manifest | None:
    """Return the published checkpoint on all ranks; None if there is none.

    Rank 0 claims the folder for this run first, so that earlier runs no longer write to it.

    Raises:
        CheckpointError: the checkpoint cannot be read.
    """
    told: dict[str, Any] | str | None = None  # plain data, because ranks may run different versions
    if comm.rank == 0:
        try:
            store.claim()
            found = store.read()
            told = found.to_json() if found is not None else None
        except CheckpointError as error:
            told = str(error)
        except Exception as error:  # else the other ranks would wait in the broadcast for ever
            told = str(store.unusable(f"{type(error).__name__}: {error}"))
    told = comm.bcast(told, root=0)
    if isinstance(told, str):
        raise CheckpointError(told)
    return Manifest.from_json(told) if told is not None else None


class Restorer:
    """Restores the data of one process when the job is started again from a checkpoint."""

    def __init__(self, manifest: Manifest, store: CheckpointStore, data: JobData) -> None:
        """Begin to restore a checkpoint.

        Until the program reaches the loop in which the checkpoint was saved, this process is
        treated like one that joins the job in a resize.

        Args:
            manifest: the contents of the checkpoint except the arrays.
            store: the folder of checkpoints.
            data: all that the program registers.
        """
        self.manifest = manifest
        self._store, self._data = store, data
        self._asked = 0
        data.membership.phase = MembershipPhase.JOINING

    def next_once_result(self) -> bytes:
        """Return the encoded result of the next call of ``job.once``, as saved in the checkpoint.

        ``job.once`` runs a function at the first start of a job only. A restart reuses its results.

        Raises:
            CheckpointError: the program had not reached this call when the checkpoint was taken.
        """
        self._asked += 1
        if self._asked > len(self.manifest.once):
            raise self._store.unusable("the program had not come to this call of job.once")
        return self.manifest.once[self._asked - 1]

    def restore_at_loop(self, loop: int) -> Position | None:
        """Restore the data if the checkpoint was taken in this loop; collective over the job.

        Args:
            loop: number of the loop that the program has reached.

        Returns:
            Where the program continues; None if the checkpoint was taken in a later loop.

        Raises:
            CheckpointError: this program cannot continue from the checkpoint.
        """
        position = self.manifest.position
        if loop < position.loop:
            return None
        member = self._data.membership
        assert member.raw is not None
        faults = [text for text in member.raw.allgather(self._load()) if text]
        if faults:
            raise self._store.unusable(faults[0])
        member.phase, member.opened = MembershipPhase.MEMBER, True
        for derived in self._data.derived:
            derived.rebuild()
        return position

    def never_reached(self) -> CheckpointError:
        """Return the error to raise if ``main`` ended before it reached the saved loop."""
        return self._store.unusable(
            f"it was taken in loop {self.manifest.position.loop}, "
            "and main() ended before it came there"
        )

    def _load(self) -> str:
        """Restore the registered data of this process.

        Returns:
            An error text; empty if the data were restored.
        """
        manifest, member = self.manifest, self._data.membership
        difference = registration_difference(manifest.registry, self._data.description())
        if difference:
            return difference
        try:
            with self._store.open_data(manifest.number) as folder:
                for entry, pieces in zip(self._data.registry, manifest.pieces, strict=True):
                    source = ArrayReader(folder, pieces, manifest.size)
                    entry.restore(source, member.rank, member.size)
            values = unpack(manifest.states)
        except CheckpointError as error:
            return str(error)
        except Exception as error:  # the values' own code may raise anything
            return f"{type(error).__name__}: {error}"
        for state, own in zip(self._data.states, values, strict=True):
            state.replace(own)
        return ""
