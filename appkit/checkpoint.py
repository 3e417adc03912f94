"""A checkpoint on the disk: which files it has, how it is published, when it is whole.

A folder holds at most one published checkpoint, ``manifest.json``, and the data it names, in a
folder of their own: ``save-7`` for the seventh. A new one is written beside the old one, brought
to the disk, and published by the rename of its manifest; only then the old data go. Whatever is
interrupted leaves either the old checkpoint or the new one. No MPI.
"""

import base64
import json
import os
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliant.appkit.celltypes import read_terms
from pliant.appkit.errors import CheckpointError
from pliant.appkit.loops import Position
from pliant.appkit.pieces import Piece
from pliant.appkit.registry import Description

MANIFEST = "manifest.json"
#: Holds the number of the job's last run that has looked for a checkpoint here.
CLAIM = "run"
#: Of the manifest; raised when its form changes.
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of a checkpoint but the arrays."""

    #: Counts the checkpoints of a folder, from 1.
    number: int
    #: The job that wrote it; 0: an ordinary MPI program.
    job: int
    run: int
    epoch: int
    #: Processes that wrote it.
    size: int
    #: Seconds since the epoch.
    time: float
    position: Position
    #: What was registered, in order.
    registry: list[Description]
    #: The values of the states, and each result of ``job.once``, pickled.
    states: bytes
    once: tuple[bytes, ...]
    #: For each registered array, in order: what all processes wrote.
    pieces: tuple[tuple[Piece, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        return {
            "format": FORMAT,
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
        """The inverse of ``to_json``."""
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
            pieces=tuple(tuple(map(Piece.from_json, own)) for own in data["pieces"]),
        )

    @property
    def data_bytes(self) -> int:
        """Size of the arrays."""
        return sum(piece.bytes for own in self.pieces for piece in own)


class Shelf:
    """The folder of one job's checkpoints.

    A run on a node that is cut off may not know that there is another by now, which went on from
    the last checkpoint: it must not touch what is here any more.
    """

    def __init__(self, folder: Path, run: int = 1) -> None:
        """Use a folder, which need not exist, for a run of the job."""
        self.folder, self._run = folder, run

    def claim(self) -> None:
        """Have all former runs, if there were any, leave this folder alone."""
        if self._run < 2:
            return
        draft = self.folder / f"{CLAIM}.new"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_text(f"{self._run}\n", encoding="ascii")
            draft.rename(self.folder / CLAIM)
        except OSError:
            return  # no run can save itself here

    def _lost_to(self) -> int:
        """The later run whose folder this is; 0: it is ours."""
        try:
            last = int((self.folder / CLAIM).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0
        return last if last > self._run else 0

    def _check(self) -> None:
        if later := self._lost_to():
            raise OSError(f"run {later} of the job has gone on from its last checkpoint")

    def data(self, number: int) -> Path:
        """Where the arrays of a checkpoint are."""
        return self.folder / f"save-{number}"

    def begin(self) -> int:
        """Make room for the next checkpoint; its number. Leftovers of one that failed go.

        Raises:
            OSError: the folder cannot be written.
        """
        self._check()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = self._published() + 1
        shutil.rmtree(self.data(number), ignore_errors=True)
        self.data(number).mkdir(mode=0o700)
        return number

    def publish(self, manifest: Manifest) -> None:
        """Make a checkpoint, whose arrays are on the disk, the one that counts; the others go.

        Raises:
            OSError: it was not published; the one before counts.
        """
        self._check()
        sync_folder(self.data(manifest.number))
        body = json.dumps(manifest.to_json(), separators=(",", ":"), allow_nan=True).encode()
        draft = self.folder / f"{MANIFEST}.new"
        with open(draft, "wb") as file:
            file.write(b"%08x\n" % zlib.crc32(body) + body)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.folder / MANIFEST)
        sync_folder(self.folder)
        for old in self.folder.glob("save-*"):
            if old != self.data(manifest.number):
                shutil.rmtree(old, ignore_errors=True)

    def drop(self, number: int) -> None:
        """Remove what was written of a checkpoint that failed."""
        if self._lost_to():
            return  # there is another of that number, perhaps
        shutil.rmtree(self.data(number), ignore_errors=True)

    def read(self) -> Manifest | None:
        """The published checkpoint; None: there is none.

        Raises:
            CheckpointError: there is one that cannot be read.
        """
        try:
            text = (self.folder / MANIFEST).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.unusable(f"{MANIFEST} cannot be read: {error}") from error
        checksum, _, body = text.partition(b"\n")
        if checksum != b"%08x" % zlib.crc32(body):
            raise self.unusable(f"{MANIFEST} is damaged")
        data = json.loads(body)
        if data.get("format") != FORMAT:
            raise self.unusable(
                f"it has format {data.get('format')!r}, this version of Pliant reads {FORMAT}"
            )
        return Manifest.from_json(data)

    def unusable(self, reason: str) -> CheckpointError:
        """The error that tells what to do about a checkpoint that is of no use."""
        return CheckpointError(
            f"the checkpoint in {self.folder} cannot be used: {reason}. To begin from the start, "
            "remove that folder"
        )

    def _published(self) -> int:
        """Number of the published checkpoint; one that is of no use is as good as none.

        What former runs left, which may still be written, counts as well.
        """
        numbers = [0]
        for path in self.folder.glob("save-*"):
            _, _, number = path.name.partition("-")
            numbers += [int(number)] if number.isdecimal() else []
        try:
            manifest = self.read()
        except CheckpointError:
            return max(numbers)
        if self._run > 1:
            return max(numbers)
        return manifest.number if manifest else 0


def compare(theirs: Sequence[Description], mine: Sequence[Description]) -> str:
    """The first difference between what was saved and what is registered; empty: there is none."""
    for place, (there, here) in enumerate(zip(theirs, mine, strict=False), start=1):
        if there != here and _as_now(there) != here:
            return f"registration {place}: the checkpoint has {there}, the program {here}"
    if len(theirs) != len(mine):
        return f"the checkpoint has {len(theirs)} registrations, the program {len(mine)}"
    return ""


def _as_now(saved: Description) -> Description:
    """As it is described now: the type of items was written as people read it once."""
    if saved[0] != "items" or not isinstance(saved[3], str):
        return saved
    return [*saved[:3], read_terms(saved[3]), *saved[4:]]


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk.

    Raises:
        OSError: they are not.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
