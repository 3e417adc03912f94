"""Wait until a job is as its arguments say: ``wait_for 1 state=RUNNING size=8``.

The arguments after the number of the job are fields of ``jobstat --json`` with their values.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

LIMIT_S = 150


def main() -> int:
    number, *wanted = sys.argv[1:]
    expected = dict(text.split("=", 1) for text in wanted)
    shown = ""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        done = subprocess.run(
            ["jobstat", "--json", number], capture_output=True, text=True, check=False
        )
        shown = done.stdout or done.stderr
        if done.returncode == 0:
            (job,) = json.loads(done.stdout)
            if all(str(job[key]) == value for key, value in expected.items()):
                return 0
        time.sleep(0.4)  # a command takes a tenth of a second of processor time
    sys.stderr.write(f"wait_for: job {number} is not {expected} after {LIMIT_S} s: {shown}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
