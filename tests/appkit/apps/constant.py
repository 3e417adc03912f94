"""Constant data of every kind beside data that change, all checked in every iteration.

Ends when a file appears. Rank 0 says what the resizes carried in their pauses.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np

import pliant.appkit.resize.prefetch_constant_arrays
from pliant.appkit import CsrMatrix, Job, ResizeInfo, malleable

N = 61
pliant.appkit.resize.prefetch_constant_arrays.LIMIT_S = 5.0
TABLE = np.arange(N * 31).reshape(N, 31)
#: Told by a test: what is there is done once, on all processes.
WORDS = sys.argv[2] if len(sys.argv) > 2 else ""


def rows(start: int, stop: int) -> Any:
    """Row ``i`` has ``i % 5`` nonzeros."""
    lengths = np.arange(start, stop) % 5
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    row = np.repeat(np.arange(start, stop), lengths)
    place = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)
    return indptr, (row * 3 + place * 7) % N, row + place / 8.0


def particles(rank: int, size: int) -> Any:
    """Ever more on later ranks."""
    return np.arange(*(N * 4 * r * r // (size * size) for r in (rank, rank + 1)))


def check_refusal(array: Any) -> None:
    """Have numpy refuse to change it."""
    try:
        array[...] = 0
    except ValueError:
        return
    raise AssertionError("a constant was changed")


def check_rows(*matrices: CsrMatrix) -> None:
    for matrix in matrices:
        for mine, whole in zip(matrix.local, rows(matrix.start, matrix.stop), strict=True):
            assert np.array_equal(mine, whole)


def listen(comm: Any) -> str:
    """The word of the test, once."""
    word = ""
    if comm.rank == 0 and WORDS and os.path.exists(WORDS):
        with open(WORDS, encoding="ascii") as file:
            word = file.read()
        os.unlink(WORDS)
    heard: str = comm.bcast(word)
    return heard


@malleable(sizes="1-64")
def main(job: Job, stop: str) -> None:
    job.on_offer(lambda _: True)
    block = job.block(
        "block", (7, N), axis=1, dtype="i8", init=TABLE[:N, :7].T.__getitem__, constant=True
    )
    uneven = job.block(
        "uneven",
        N,
        lengths=lambda size: [1] * (size - 1) + [N + 1 - size],
        init=lambda index: np.arange(N)[index],
        constant=True,
    )
    copy = job.replicated("copy", 100, init=lambda: np.arange(100), constant=True)
    matrix = job.csr("A", (N, N), init=rows, constant=True)
    weighed = job.csr("B", (N, N), init=rows, balance="nnz", constant=True)
    right = job.block("b", N, like=matrix, init=lambda index: np.arange(N)[index], constant=True)
    fixed = job.items("fixed", "i8", init=particles, constant=True)
    dealt = job.cyclic("dealt", N, block=2, init=np.arange(N).__getitem__, constant=True)
    grid = job.block_cyclic(
        "grid", TABLE.shape, blocks=(3, 2), dtype="i8", init=TABLE.__getitem__, constant=True
    )
    cells = job.partition(
        "cells", N, owner=lambda size: np.arange(N) * 3 % size, init=lambda own: own, constant=True
    )
    counted = job.block("counted", (N, 2), dtype="i8")
    vector = job.block("x", N, like=matrix, init=lambda index: np.arange(N)[index])
    state = job.state(factor=1, slips=0)
    if not job.joining:
        block.local = block.local  # it may be filled before the first loop
        early = copy.local[:]

    @job.after_resize
    def told(change: ResizeInfo) -> None:
        if job.first:
            print(f"resize {change.before} {change.after} {change.committed}", flush=True)

    for it in job.steps(1_000_000):
        comm = job.comm
        factor = state.factor
        assert np.array_equal(block.local, TABLE[block.start : block.stop, :7].T * factor)
        assert uneven.local.tolist() == list(range(uneven.start, uneven.stop))
        assert np.array_equal(copy.local, np.arange(100) + state.slips)
        check_rows(matrix, weighed)
        assert np.array_equal(right.local, np.arange(matrix.start, matrix.stop))
        assert np.array_equal(np.concatenate(comm.allgather(fixed.local)), np.arange(4 * N))
        assert np.array_equal(dealt.local, dealt.cells[0])
        assert np.array_equal(grid.local, TABLE[np.ix_(*grid.cells)])
        assert np.array_equal(cells.local, cells.cells)
        assert (counted.local == it).all()
        counted.local += 1
        assert np.array_equal(vector.local, np.arange(matrix.start, matrix.stop))
        for array in (block.local, copy.local, matrix.data):
            check_refusal(array)
        word = listen(comm)
        if word == "change":
            job.thaw(block)
            block.local *= 2
            state.factor *= 2
        if word == "slip":
            early += 1
            state.slips += 1
        if word == f"alone {comm.rank}":
            job.thaw(copy)
        if comm.bcast(os.path.exists(stop) if comm.rank == 0 else None):
            break
        time.sleep(0.01)
    if job.first:
        print(f"size {job.comm.size} iteration {it} verified")


main(sys.argv[1])
