"""The folder of a job's checkpoints: its files, how one is published, and when one is valid.

A folder holds at most one published checkpoint: ``manifest.json`` and, in a folder of their own,
the arrays that it names (``save-7`` for the seventh checkpoint). A new checkpoint is written next
to the old one, synced to the disk and published by renaming its manifest. Only then are the old
arrays removed, so that an interruption leaves either the old checkpoint or the new one. Owner and
mode of the folder and the signature of the manifest are checked before anything is read. No MPI.
"""

import base64
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliant.appkit.appkit_errors import CheckpointError
from pliant.appkit.data.dtype import read_terms
from pliant.appkit.data.registered_data import Description
from pliant.appkit.loops import Position
from pliant.appkit.storage.array_files import SavedArray
from pliant.appkit.storage.checkpoint_signature import KeySource, is_signed, own_key, sign
from pliant.appkit.storage.private_folders import PrivateFolder
from pliant.protos.daemons.private_paths import UntrustedPathError

MANIFEST = "manifest.json"
#: File with the number of the last run of the job that has looked for a checkpoint here.
CLAIM = "run"
#: The first line of a manifest is this word, the format, and the signature of the rest. Format 1,
#: which had pickles and a checksum that anybody can make, is refused.
MAGIC = "pliant-checkpoint"
FORMAT = 2

_DATA = "save-"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a checkpoint except the arrays themselves.

    It has the number of processes, the loop and iteration to continue at, descriptions of the
    registered data, the values of ``job.state``, and a record of each saved piece of an array.
    """

    #: Number of the checkpoint in its folder, from 1.
    number: int
    #: The job that has written it; 0 for an ordinary MPI program.
    job: int
    run: int
    epoch: int
    #: Number of processes that have written it.
    size: int
    #: Seconds since the epoch.
    time: float
    position: Position
    #: Descriptions of the registered data, in order.
    registry: list[Description]
    #: The values of ``job.state``, encoded by `serialization`.
    states: bytes
    #: The results of ``job.once``, each encoded by `serialization`.
    once: tuple[bytes, ...]
    #: For each registered array, the pieces that all processes have written.
    pieces: tuple[tuple[SavedArray, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as the JSON object that its file contains."""
        return {
            "number": self.number,
            "job": self.job,
            "run": self.run,
            "epoch": self.epoch,
            "size": self.size,
            "time": self.time,
            "loop": self.position.loop,
            "iteration": self.position.iteration,
            "registry": self.registry,
            "states": _text(self.states),
            "once": [_text(data) for data in self.once],
            "pieces": [[piece.to_json() for piece in own] for own in self.pieces],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Manifest":
        """Return the manifest that a parsed JSON object describes."""
        return cls(
            number=data["number"],
            job=data["job"],
            run=data["run"],
            epoch=data["epoch"],
            size=data["size"],
            time=data["time"],
            position=Position(data["loop"], data["iteration"]),
            registry=data["registry"],
            states=base64.b64decode(data["states"]),
            once=tuple(base64.b64decode(text) for text in data["once"]),
            pieces=tuple(tuple(map(SavedArray.from_json, own)) for own in data["pieces"]),
        )

    @property
    def data_bytes(self) -> int:
        """Return the size of all saved arrays together, in bytes."""
        return sum(piece.bytes for own in self.pieces for piece in own)


class CheckpointStore:
    """Reads and writes the folder of one job's checkpoints.

    A run on a node that has lost contact may not know that a later run has continued from the last
    checkpoint. Such a run must not change anything in the folder (see `claim`).
    """

    def __init__(self, folder: Path, run: int = 1, key: KeySource = own_key) -> None:
        """Use a folder, which need not exist yet, for one run of a job.

        Args:
            folder: the folder of the job; others must not be able to write into it.
            run: the number of this run of the job: 1 at its first start, one more at each restart.
            key: returns the key that signs manifests; called only on a process that writes or
                reads a manifest.
        """
        self.folder, self._run, self._key = folder, run, key

    def open(self, *, create: bool = False) -> PrivateFolder:
        """Open the job's folder of checkpoints; with ``create``, make it if it does not exist.

        Raises:
            UntrustedPathError: another account may have made or changed it.
            OSError: the folder does not exist, or cannot be opened.
        """
        return PrivateFolder.open(self.folder, create=create)

    def open_data(self, number: int) -> PrivateFolder:
        """Open the folder with the arrays of checkpoint ``number``; raises the errors of `open`."""
        with self.open() as folder:
            return folder.child(data_name(number))

    def data(self, number: int) -> Path:
        """Return the path of the folder with the arrays of checkpoint ``number``."""
        return self.folder / data_name(number)

    def claim(self) -> None:
        """Record the number of this run in the folder, so that earlier runs refuse to write to it.

        The first run records nothing, because no run came before it. If the folder cannot be
        written, it stays as it is.
        """
        if self._run < 2:
            return
        try:
            with self.open(create=True) as folder:
                folder.remove(f"{CLAIM}.new")
                with folder.write(f"{CLAIM}.new") as file:
                    file.write(b"%d\n" % self._run)
                folder.rename(f"{CLAIM}.new", CLAIM)
        except OSError:
            return  # then no run can write here

    def begin(self) -> int:
        """Create the folder of the next checkpoint, and return its number.

        Files of a failed checkpoint of that number are removed.

        Raises:
            OSError: the folder cannot be written, or is not this user's own.
        """
        with self.open(create=True) as folder:
            self._check(folder)
            number = self._last_used_number(folder) + 1
            folder.remove(data_name(number))
            folder.child(data_name(number), create=True).close()
        return number

    def publish(self, manifest: Manifest) -> None:
        """Make a checkpoint the valid one, after its arrays were written, and remove all others.

        Raises:
            OSError: it was not published, for example because files that other processes have
                written are not in this folder. The previous checkpoint remains published.
        """
        body = json.dumps(manifest.to_json(), separators=(",", ":"), allow_nan=True).encode()
        head = f"{MAGIC} {FORMAT} {sign(self._key(), FORMAT, body)}\n".encode("ascii")
        with self.open() as folder:
            self._check(folder)
            with folder.child(data_name(manifest.number)) as data:
                _check_files(manifest, data)
                data.sync()
            folder.remove(f"{MANIFEST}.new")
            with folder.write(f"{MANIFEST}.new") as file:
                file.write(head + body)
                file.flush()
                os.fsync(file.fileno())
            folder.rename(f"{MANIFEST}.new", MANIFEST)
            folder.sync()
            for name in folder.names():
                if name.startswith(_DATA) and name != data_name(manifest.number):
                    folder.remove(name)

    def drop(self, number: int) -> None:
        """Remove the files of a checkpoint that failed."""
        with suppress(OSError), self.open() as folder:
            if not self._later_run(folder):  # the later run may have one of that number
                folder.remove(data_name(number))

    def read(self) -> Manifest | None:
        """Return the published checkpoint, None if there is none.

        Nothing is parsed before owner, mode and signature have been checked.

        Raises:
            CheckpointError: the checkpoint cannot be read, or not be trusted.
        """
        try:
            with self.open() as folder:
                return self._read(folder)
        except FileNotFoundError:
            return None
        except UntrustedPathError as error:
            raise CheckpointError(f"the checkpoints of this job cannot be used: {error}") from None
        except OSError as error:
            raise self.unusable(f"{MANIFEST} cannot be read: {error}") from error

    def _read(self, folder: PrivateFolder) -> Manifest:
        with folder.read(MANIFEST) as file:
            head, _, body = file.read().partition(b"\n")
        number, signature = self._format(head)
        if number != FORMAT:
            raise self.unusable(
                f"it has format {number}, this version of Pliant reads format {FORMAT}"
            )
        if not is_signed(self._key(), number, body, signature):
            raise self.unusable(
                f"{MANIFEST} is damaged, or this job has not written it (its signature is wrong)"
            )
        return Manifest.from_json(json.loads(body))

    def _format(self, head: bytes) -> tuple[int, bytes]:
        """Return the format number and the signature in the first line of a manifest.

        Raises:
            CheckpointError: the line has neither the present form nor that of format 1.
        """
        match head.split(b" "):
            case [magic, number, signature] if magic == MAGIC.encode() and number.isdigit():
                return int(number[:9]), signature
        if re.fullmatch(rb"[0-9a-f]{8}", head):  # the checksum with which format 1 begins
            return 1, b""
        raise self.unusable(f"{MANIFEST} is damaged")

    def unusable(self, reason: str) -> CheckpointError:
        """Return the error to raise if the checkpoint cannot be used; its text says what to do."""
        return CheckpointError(
            f"the checkpoint in {self.folder} cannot be used: {reason}. To begin from the start, "
            "remove that folder"
        )

    def _later_run(self, folder: PrivateFolder) -> int:
        """Return the number of a later run that has claimed the folder; 0 if there is none."""
        try:
            with folder.read(CLAIM) as file:
                last = int(file.read(32))
        except (OSError, ValueError):
            return 0
        return last if last > self._run else 0

    def _check(self, folder: PrivateFolder) -> None:
        if later := self._later_run(folder):
            raise OSError(f"run {later} of the job has gone on from its last checkpoint")

    def _last_used_number(self, folder: PrivateFolder) -> int:
        """Return the highest checkpoint number that must not be used again; 0 if there is none.

        In the first run of a job, that is the number of the published checkpoint. In later runs, or
        if the checkpoint cannot be read, it is the highest number of any folder with arrays:
        processes of an earlier run may still be writing to one.
        """
        numbers = [0]
        for name in folder.names():
            number = name.removeprefix(_DATA)
            numbers += [int(number)] if name != number and number.isdecimal() else []
        try:
            manifest = self._read(folder)
        except FileNotFoundError:
            manifest = None
        except (CheckpointError, OSError):
            return max(numbers)
        if self._run > 1:
            return max(numbers)
        return manifest.number if manifest else 0


def _check_files(manifest: Manifest, folder: PrivateFolder) -> None:
    """Check that this process sees the files that all processes have written.

    A file is missing if a node's folder is not on a shared disk. That node's part of the data would
    then be lost.

    Args:
        manifest: names the files.
        folder: the folder with the arrays of the checkpoint.

    Raises:
        OSError: a file is missing.
    """
    seen = set(folder.names())
    for piece in (piece for own in manifest.pieces for piece in own):
        if piece.file not in seen:
            raise OSError(
                f"{folder.path / piece.file}, which rank {piece.rank} has written, is not visible "
                "on the node of rank 0: the nodes must share the folder of checkpoints"
            )


def data_name(number: int) -> str:
    """Return the name of the folder with the arrays of checkpoint ``number``."""
    return f"{_DATA}{number}"


def registration_difference(theirs: Sequence[Description], mine: Sequence[Description]) -> str:
    """Return the first difference between two lists of registrations as text; empty if equal.

    Args:
        theirs: those in a checkpoint.
        mine: those of the program.
    """
    for place, (there, here) in enumerate(zip(theirs, mine, strict=False), start=1):
        if there != here and _in_present_form(there) != here:
            return f"registration {place}: the checkpoint has {there}, the program {here}"
    if len(theirs) != len(mine):
        return f"the checkpoint has {len(theirs)} registrations, the program {len(mine)}"
    return ""


def _in_present_form(saved: Description) -> Description:
    """Convert a description in a checkpoint to the form that this version writes.

    In old versions, the type of items was text.
    """
    if saved[0] != "items" or not isinstance(saved[3], str):
        return saved
    return [*saved[:3], read_terms(saved[3]), *saved[4:]]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
