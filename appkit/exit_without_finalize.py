"""End this process without finalizing MPI."""

import os
import sys


def end_now(code: int, reason: str = "") -> None:
    """End this process without MPI_Finalize, which may hang or abort after a failed connect.

    The reason, if there is one, is printed on stderr.
    """
    if reason:
        print(f"pliant: {reason}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
