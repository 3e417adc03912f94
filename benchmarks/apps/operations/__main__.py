"""Run every MPI operation on the communicator of a malleable job, at its first and each new size.

    python benchmarks/apps/operations FOLDER [SKIPPED...]

Rank 0 appends to FOLDER/results one line per operation: the number of resizes so far, the size, the
title, and the result: ``ok``, ``unsupported: REASON`` or ``FAILED: REASON``. The line
``RESIZES SIZE done`` follows when all operations have been run at a size. FOLDER/running names the
operation that is being run. A process that is in one operation for longer than the limit
(PLIANT_OPERATION_LIMIT_S, by default 60 seconds) prints its stack and ends the job.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from pathlib import Path

import collectives
import communicators
import files
import messages
import object_messages
import objects
import topologies
import windows
from listing import OPERATIONS, NotSupported, Operation, missing, unknown
from mpi4py import MPI

from pliant.appkit import Job, malleable

#: Imported for what they list, in the order of the table.
PARTS = (messages, object_messages, collectives, communicators, topologies, windows, files, objects)
LIMIT_S = float(os.environ.get("PLIANT_OPERATION_LIMIT_S", "60"))


def result_of(operation: Operation, comm: MPI.Intracomm, folder: Path) -> str:
    """Run one operation; return ``ok``, ``unsupported: REASON`` or ``FAILED: REASON``.

    If not all ranks have the same result, it is a failure that names the differing ones.
    """
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    try:
        operation.run(comm, folder)
    except NotSupported as error:
        mine = f"unsupported: {error}"
    except NotImplementedError as error:
        mine = f"unsupported: {type(error).__name__}: {error}"
    except Exception as error:
        mine = f"FAILED: {type(error).__name__}: {error}"
    else:
        mine = "ok"
    every = comm.allgather(mine)
    faulthandler.cancel_dump_traceback_later()
    bad = [f"{text} (rank {rank})" for rank, text in enumerate(every) if text != mine]
    return mine if not bad else f"FAILED: {mine} (rank {comm.rank}), but {'; '.join(bad)}"


def run_all(comm: MPI.Intracomm, folder: Path, skipped: set[str], resizes: int) -> None:
    """Run all operations but the ``skipped`` ones, and append each result to FOLDER/results."""
    results = folder / "results"
    for title, operation in OPERATIONS.items():
        if title in skipped:
            continue
        if comm.rank == 0:
            (folder / "running").write_text(f"{resizes}\t{comm.size}\t{title}")
        result = result_of(operation, comm, folder).replace("\n", " ")
        if comm.rank == 0:
            with results.open("a") as file:
                file.write(f"{resizes}\t{comm.size}\t{title}\t{result}\n")
    if comm.rank == 0:
        with results.open("a") as file:
            file.write(f"{resizes}\t{comm.size}\tdone\n")


@malleable(sizes="1-64")
def main(job: Job) -> None:
    """Run the operations at the first and each new size, until the file FOLDER/stop appears."""
    folder, skipped = Path(sys.argv[1]), set(sys.argv[2:])
    job.on_offer(lambda _: True)  # also where more processors gain nothing
    state = job.state(resizes=0, size=0)
    for _ in job.steps(10**9):
        if job.comm.size != state.size:
            if state.size:
                state.resizes += 1
            state.size = job.comm.size
            run_all(job.comm, folder, skipped, state.resizes)
        time.sleep(0.02)
        if job.comm.bcast((folder / "stop").exists() if job.comm.rank == 0 else None):
            break


def show_list() -> int:
    """Print the list of operations, and the public names of mpi4py that no operation calls.

    Return the exit code.
    """
    for title, operation in OPERATIONS.items():
        print(f"{operation.group}\t{title}")
    for name in missing():
        print(f"missing: {name}", file=sys.stderr)
    for name in unknown():
        print(f"unknown: {name}", file=sys.stderr)
    return 1 if missing() or unknown() else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        raise SystemExit(show_list())
    main()
