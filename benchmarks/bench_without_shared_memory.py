"""Latency and bandwidth on one node, with two settings that keep grown jobs from hanging.

When processes join a job later, MPICH treats all of them as ranks of one node. Therefore operations
that work node by node hang on a grown communicator. Two settings make them return. One is
`MPIR_CVAR_NOLOCAL`, with which MPICH treats every rank as a node of its own. The other selects
different algorithms for the collectives, which keep shared memory but do not help windows. This
benchmark measures latency and bandwidth between two ranks of a node, before and after a growth from
2 to 4 ranks, for both settings and both transports. ucx uses an outer interface unless there is
only loopback, so it runs in a network namespace of its own, as root.

    python benchmarks/bench_without_shared_memory.py [ofi|ucx]
"""

from __future__ import annotations

import os
import sys
import time

from benchkit import APPS, busy, cluster, in_namespace

from pliant.client.client_errors import RequestError

#: Settings of MPICH by the name of the remedy.
REMEDIES = {
    "every rank a node (NOLOCAL)": {"MPIR_CVAR_NOLOCAL": "1"},
    "other algorithms, shared memory": {
        "MPIR_CVAR_NOLOCAL": "0",
        "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
        "MPIR_CVAR_IBCAST_INTRA_ALGORITHM": "sched_binomial",
        "MPIR_CVAR_ISCAN_INTRA_ALGORITHM": "sched_recursive_doubling",
    },
}
#: What the pair of ranks (ONE, ONE + 1) is at a size.
PAIRS = {
    (2, 0): "before the growth",
    (4, 0): "after it, both of the first world",
    (4, 1): "after it, one of each world",
    (4, 2): "after it, both joined",
}
TRANSPORTS = ("ofi", "ucx")
LIMIT_S = 120.0


def run(transport: str, settings: dict[str, str]) -> dict[tuple[int, int, int], float]:
    """Return the seconds of half a round trip, by number of ranks, lower rank and bytes."""
    options = ("--strategy", "fcfs", "--transport", transport)
    with cluster(1, 4, *options) as (client, out):
        log, stop = out / "log", out / "stop"
        job = client.submit(
            *(sys.executable, str(APPS / "rank_pair_latency.py"), str(stop)),
            sizes="2-4",
            prefer=2,
            chdir=str(out),
            stdout=str(log),
            env={**os.environ, **settings},
        )
        deadline = time.monotonic() + LIMIT_S
        ordered = False
        while not log.exists() or "done 4\n" not in log.read_text():
            if time.monotonic() > deadline or client.job(job).final:
                raise SystemExit(f"{client.job(job).reason}: {log.read_text()}")
            if not ordered and log.exists() and "done 2\n" in log.read_text():
                try:
                    client.resize(job, 4)
                    ordered = True
                except RequestError:  # busy
                    pass
            time.sleep(0.05)
        stop.touch()
        client.wait(job)
        found = {}
        for line in log.read_text().splitlines():
            if not line.startswith("done"):
                size, one, _other, nbytes, took = line.split()
                found[int(size), int(one), int(nbytes)] = float(took)
        return found


def measure(transport: str) -> None:
    """Print the rows of one transport, as Markdown."""
    found = {name: run(transport, settings) for name, settings in REMEDIES.items()}
    for (size, one), where in PAIRS.items():
        cells = []
        for values in found.values():
            small = min(key[2] for key in values)
            large = max(key[2] for key in values)
            cells.append(f"{values[size, one, small] * 1e6:.1f}")
            cells.append(f"{large / values[size, one, large] / 1e9:.2f}")
        print(f"| {transport} | {where} | {' | '.join(cells)} |", flush=True)


def main(arguments: list[str]) -> int:
    """Measure every transport, ucx in a network namespace of its own; return the exit code."""
    if arguments:
        measure(arguments[0])
        return 0
    print(f"latency of 8 bytes in us, bandwidth of 4 MiB in GB/s; {busy()}")
    names = " | ".join(f"{name}: us | GB/s" for name in REMEDIES)
    print(f"| transport | two ranks of one node | {names} |")
    print("|---|---|---|---|---|---|", flush=True)
    return max(in_namespace(__file__, transport) for transport in TRANSPORTS)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
