"""Run every benchmark below this folder, or those named: ``python benchmarks [NAME...]``.

A benchmark is a script ``bench_NAME.py`` that prints its figures next to their budgets. Its exit
code is 1 if it is over budget.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(names: list[str]) -> int:
    """Run the benchmarks one after the other and return 1 if one of them failed."""
    scripts = {
        path.stem.removeprefix("bench_"): path
        for path in sorted(Path(__file__).parent.rglob("bench_*.py"))
    }
    unknown = [name for name in names if name not in scripts]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(scripts)}")
        return 2
    failed = []
    for name in names or scripts:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, scripts[name]], check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"failed or over budget: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
