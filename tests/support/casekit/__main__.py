"""Says which tests pytest has to run for all cases, or some: ``python -m casekit [NUMBER]...``."""

from __future__ import annotations

import sys

from casekit import CASES


def main(numbers: list[str]) -> int:
    """Print them, each once; of a test with parameters all cases are run."""
    wanted = [case for case in CASES if not numbers or str(case.number) in numbers]
    tests = [test.partition("[")[0] for case in wanted for test in case.tests]
    print("\n".join(dict.fromkeys(tests)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
