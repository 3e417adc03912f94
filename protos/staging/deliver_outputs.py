"""Unpack the outputs of a job, one archive from each node, into the submission folder.

Standard output and error are appended to existing files, because every node and every run of the
job has written a part. Other files replace those of the same name. If two nodes have written a file
of the same name, the second file gets the name of its node as a suffix, so that neither is lost.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import IO

from pliant.protos.daemons.atomic_files import sync_folder
from pliant.protos.staging.archive import unpack


def deliver(  # noqa: PLR0913 - the caller knows what was delivered before
    archive: IO[bytes],
    folder: str,
    node: str,
    *,
    streams: Collection[str],
    truncates: bool,
    earlier: Collection[str],
    taken: Collection[str],
    limit: int,
) -> list[str]:
    """Unpack the outputs that a node returns, and move them into the job's submission folder.

    Args:
        archive: the archive.
        folder: the submission folder.
        node: the node that has sent the archive.
        streams: names of the files of standard output and error, relative to the folder.
        truncates: whether the job replaces existing files of standard output and error.
        earlier: files that the job has delivered before.
        taken: the files among ``earlier`` that other nodes have delivered in this execution of the
            job.
        limit: the largest total size of the files in the archive, in bytes.

    Returns:
        The names of the files in the archive.

    Raises:
        StagingError: the archive is damaged or holds something that is not permitted.
        OSError: a file cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix=".pliant-", dir=folder) as draft:
        names = unpack(archive, draft, limit)
        # Output last: if this is interrupted and repeated, no text is appended twice.
        for name in sorted(names, key=lambda each: each in streams):
            source, target = os.path.join(draft, name), os.path.join(folder, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            appends = name in streams and (name in earlier or not truncates)
            if appends and os.path.exists(target):
                with open(source, "rb") as text, open(target, "ab") as file:
                    shutil.copyfileobj(text, file)
                    file.flush()
                    os.fsync(file.fileno())
                continue
            if not os.path.islink(source):
                with open(source, "rb") as file:
                    os.fsync(file.fileno())
            is_taken = name in taken and name not in streams
            os.replace(source, f"{target}.{node}" if is_taken else target)
    # The caller removes the archive next, so the files must survive a power failure.
    for changed in {Path(folder, parent) for name in names for parent in Path(name).parents}:
        with suppress(OSError):  # some network file systems cannot do this
            sync_folder(changed)
    return names
