"""Calls per second of `PliantExecutor` and, for comparison, of `ProcessPoolExecutor`.

Both have two workers on this machine. In each round, `map` runs a function that returns its
argument: 1000 times one by one, then 20,000 times in chunks of 100. The function is in a module
(`operator.pos`), because `ProcessPoolExecutor` cannot send functions of a main program by value.
Then one call returns 100 MB. The rounds of the two executors alternate, after one round that is not
counted.

Budget: in chunks, at least a tenth of the calls per second of `ProcessPoolExecutor`.

``python benchmarks/bench_executor.py [ROUNDS]``
"""

from __future__ import annotations

import operator
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor

from benchkit import busy, cluster, verdict

from pliant.client import PliantExecutor

WORKERS, SINGLE, CHUNKED, CHUNK, LARGE = 2, 1000, 20_000, 100, 100_000_000


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(executor: Executor) -> tuple[float, float, float]:
    """Return calls per second made one by one, the same in chunks, and MB per second of a result.

    The result is a large one, of ``LARGE`` bytes.
    """
    single = timed(lambda: sum(executor.map(operator.pos, range(SINGLE))))
    chunked = timed(lambda: sum(executor.map(operator.pos, range(CHUNKED), chunksize=CHUNK)))
    large = timed(lambda: executor.submit(bytes, LARGE).result())
    return SINGLE / single, CHUNKED / chunked, LARGE / large / 1e6


def main(rounds: int) -> int:
    print(busy())
    with cluster(1, WORKERS), PliantExecutor(WORKERS) as jobs, ProcessPoolExecutor(WORKERS) as pool:
        executors = {"ProcessPoolExecutor": pool, "PliantExecutor": jobs}
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in executors}
        for turn in range(rounds + 1):
            for name, executor in executors.items():
                values = measure(executor)
                if turn:
                    found[name].append(values)
    medians = {}
    for index, what in enumerate(("calls/s, one by one", "calls/s, chunks of 100", "MB/s")):
        for name, values in found.items():
            numbers = sorted(each[index] for each in values)
            medians[name, index] = statistics.median(numbers)
            spread = f"{numbers[0]:.0f} - {numbers[-1]:.0f}"
            print(f"{what:24} {name:20} {medians[name, index]:9.0f}  ({spread})  n={len(numbers)}")
    print(busy())
    share = medians["PliantExecutor", 1] / medians["ProcessPoolExecutor", 1]
    return not verdict("chunks, share of ProcessPoolExecutor", share, 0.1, "", at_least=True)


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if sys.argv[1:] else 7))
