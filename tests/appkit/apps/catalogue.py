"""Registers one of everything and checks all in every iteration; ends when a file appears.

With a second argument it fails at that iteration.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

from pliant.appkit import CsrMatrix, Items, Job, malleable

N = 53
KIND = [("id", "i8"), ("x", "f4", 3)]


def particles(rank: int, size: int) -> Any:
    """Ever more on later ranks."""
    bounds = [N * 4 * r * r // (size * size) for r in (rank, rank + 1)]
    items = np.zeros(bounds[1] - bounds[0], KIND)
    items["id"] = np.arange(*bounds)
    return items


def rows(start: int, stop: int) -> Any:
    """Row ``i`` has ``i % 5`` nonzeros."""
    lengths = np.arange(start, stop) % 5
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    row = np.repeat(np.arange(start, stop), lengths)
    place = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)
    return indptr, (row * 3 + place * 7) % N, row + place / 8.0


def lengths(size: int) -> list[int]:
    """All but the last have one."""
    return [1] * (size - 1) + [N + 1 - size]


def check_items(items: Items, comm: Any, it: int) -> None:
    everything = np.concatenate(comm.allgather(items.local))
    assert (everything["x"] == it).all()
    assert sorted(everything["id"]) == list(range(4 * N))
    if "owner" not in repr(items):
        assert (np.diff(everything["id"]) == 1).all(), "the order stays"
    items.local["x"] += 1


def check_matrix(matrix: CsrMatrix, vector: Any, comm: Any) -> None:
    for mine, whole in zip(matrix.local, rows(matrix.start, matrix.stop), strict=True):
        assert np.array_equal(mine, whole)
    assert np.array_equal(vector.local[0], np.arange(matrix.start, matrix.stop))
    _, columns, values = rows(0, N)
    products = np.split(values * columns, rows(0, N)[0][1:-1])
    whole = np.array([product.sum() for product in products])
    result = matrix.matvec(vector.local[0])
    assert np.allclose(np.concatenate(comm.allgather(result)), whole)


def scattered(size: int) -> Any:
    """No two neighbours on one process."""
    return np.arange(N) * 3 % (size + 1) % size


def some_words(rank: int, size: int) -> dict[int, str]:
    return {number: "word" * number for number in range(rank, 20, size)}


def pack(value: dict[int, str], size: int) -> list[bytes]:
    parts = [{n: word for n, word in value.items() if n % size == rank} for rank in range(size)]
    return [json.dumps(part).encode() for part in parts]


def unpack(parts: list[memoryview], *_: int) -> dict[int, str]:
    value = {}
    for part in parts:
        value.update({int(n): word for n, word in json.loads(bytes(part)).items()})
    return value


@malleable(sizes="1-64")
def main(job: Job, stop: str, failing: int) -> None:
    job.on_offer(lambda _: True)
    swarms = [
        job.items("even", KIND, init=particles),
        job.items("weighed", KIND, init=particles, weight=lambda items: items["id"] % 3),
        job.items("owned", KIND, init=particles, owner=lambda items, size: items["id"] % size),
    ]
    matrices = []
    for rule in ("rows", "nnz"):
        sparse = job.csr(f"A {rule}", (N, N), balance=rule, init=rows)
        index = np.arange(3.0 * N).reshape(3, N)
        vector = job.block(f"x {rule}", (3, N), axis=1, like=sparse, init=index.__getitem__)
        matrices.append((sparse, vector))
    uneven = job.block("uneven", N, lengths=lengths, init=lambda index: np.arange(N)[index])
    index = np.arange(4.0 * N).reshape(4, N)
    dealt = job.cyclic("dealt", (4, N), axis=1, block=2, init=index.__getitem__)
    table = np.arange(N * 31).reshape(N, 31)
    matrix = job.block_cyclic(
        "matrix", table.shape, blocks=(3, 2), dtype="i8", init=table.__getitem__
    )
    cells = job.partition("cells", (N, 2), owner=scattered, init=lambda own: own[:, None] + [0, 1])
    parts = job.partition("parts", N, owner=np.arange(N) % 7, init=lambda own: own)
    words = job.custom("words", init=some_words, pack=pack, unpack=unpack)
    log = job.root_only("log", 3, dtype="i8")
    noise = job.rng("noise", 1)
    for it in job.steps(1_000_000, every=5, save_every=4):
        if it == failing:
            sys.exit(7)
        comm = job.comm
        for items in swarms:
            check_items(items, comm, it)
        for sparse, vector in matrices:
            check_matrix(sparse, vector, comm)
        assert uneven.local.tolist() == list(range(uneven.start, uneven.stop))
        assert uneven.stop - uneven.start == lengths(comm.size)[comm.rank]
        assert np.array_equal(dealt.local, index[:, dealt.cells[0]] + it)
        dealt.local += 1
        assert np.array_equal(matrix.local, table[np.ix_(*matrix.cells)])
        assert np.array_equal(cells.local, cells.cells[:, None] + [0, 1])
        assert np.array_equal(parts.local, parts.cells)
        assert words.value == some_words(comm.rank, comm.size)
        if job.first:
            assert (log.local == it).all()
            log.local += 1
        draws = comm.allgather(noise.generator.integers(1 << 62))
        assert len(set(draws)) == comm.size, "each has a stream of its own"
        if it % 3 == 0:
            swarms[it % 9 // 3].rebalance()
            assert matrices[1][0].rebalance() == 0, "it is balanced"
        if comm.bcast(os.path.exists(stop) if comm.rank == 0 else None):
            break
        time.sleep(0.01)
    if job.first:
        print(f"size {job.comm.size} iteration {it} verified")


main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else -1)
print("after main", flush=True)
