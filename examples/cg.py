"""The conjugate gradient method on a sparse matrix from a Matrix Market file.

Solves A x = b, with A symmetric and positive definite, and b = A (1, 1, ..., 1), so that the
solution is known. In each step, with r = b - A x and p the direction of search::

    alpha = (r, r) / (p, A p),   x += alpha p,   r -= alpha A p
    p = r + (r', r') / (r, r) p

The rows of A are distributed so that all processes have about the same number of nonzeros. Vectors
are distributed like the rows. ``--make`` writes a matrix to try it with, the 5-point Laplacian of
an N x N grid::

    python -m pliant.examples.cg --make 100 poisson.mtx
    python -m pliant.examples.cg poisson.mtx
    mpiexec -n 3 python -m pliant.examples.cg poisson.mtx
    jobsub -n 1-8 python -m pliant.examples.cg poisson.mtx

The checksum is the same on any number of processes and after any resizes: each row is multiplied
on one process, in the order of its columns, and inner products are exact (`common.exact_sum`).
"""

import argparse
from pathlib import Path

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit import Job, malleable
from pliant.examples import common

Vector = NDArray[np.float64]
#: Rows in compressed form: offsets of the rows, columns, values.
Rows = tuple[NDArray[np.int64], NDArray[np.int64], Vector]


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = common.options(__doc__, steps=10_000, every=5)
    parser.add_argument("matrix", type=Path, help="file in Matrix Market format")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-10,
        help="of the residual, relative to b (%(default)s)",
    )
    parser.add_argument(
        "--make", type=common.positive, metavar="N", help="write a matrix of N x N rows instead"
    )
    return parser.parse_args(argv)


def make_poisson(n: int, path: Path) -> None:
    """Write the lower half of the 5-point Laplacian of an n x n grid."""
    cell = np.arange(n * n).reshape(n, n) + 1
    entries = [(cell, cell, 4), (cell[:, 1:], cell[:, :-1], -1), (cell[1:], cell[:-1], -1)]
    with path.open("w", encoding="ascii") as out:
        out.write("%%MatrixMarket matrix coordinate real symmetric\n")
        out.write(f"{n * n} {n * n} {sum(rows.size for rows, _, _ in entries)}\n")
        for rows, columns, value in entries:
            for row, column in zip(rows.flat, columns.flat, strict=True):
                out.write(f"{row} {column} {value}\n")


def read_size(path: Path) -> int:
    """Return the number of rows of the matrix in a file."""
    try:
        with path.open(encoding="ascii") as lines:
            kind = next(lines, "").lower().split()
            text = next((line for line in lines if not line.startswith("%")), "")
        if kind != ["%%matrixmarket", "matrix", "coordinate", "real", "symmetric"]:
            raise ValueError("expected '%%MatrixMarket matrix coordinate real symmetric' on line 1")
        rows, columns, _ = (int(word) for word in text.split())
        if rows != columns:
            raise ValueError(f"{rows} x {columns}: expected as many rows as columns")
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: no matrix can be read: {error}") from None
    return rows


def read_rows(path: Path, start: int, stop: int) -> Rows:
    """Read rows ``start`` to ``stop`` of a symmetric matrix; the file has one half of it."""
    try:
        table = np.loadtxt(path, comments="%", ndmin=2)[1:]
    except ValueError as error:
        raise SystemExit(f"{path}: no matrix can be read: {error}") from None
    i, j = table[:, :2].astype(np.int64).T - 1
    off = i != j
    row, column = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
    value = np.concatenate([table[:, 2], table[off, 2]])
    order = np.lexsort((column, row))
    order = order[(row[order] >= start) & (row[order] < stop)]
    offsets = np.searchsorted(row[order], np.arange(start, stop + 1))
    return offsets, column[order], value[order]


def dot(a: Vector, b: Vector, comm: MPI.Intracomm) -> float:
    return common.exact_sum(comm, a * b)


@malleable(sizes="1-64")
def main(job: Job, args: argparse.Namespace) -> None:
    n = job.once(lambda: read_size(args.matrix))
    a = job.csr("A", (n, n), balance="nnz", init=lambda lo, hi: read_rows(args.matrix, lo, hi))
    vectors = [
        job.block(name, n, like=a, init=lambda _: a.matvec(np.ones(a.stop - a.start)))
        for name in ("b", "r", "p")
    ]
    vectors.append(job.block("x", n, like=a))
    state = job.state(steps=0)
    common.tell_resizes(job)

    for _ in job.steps(args.steps, every=args.every, save_every=args.save_every):
        comm = job.comm
        b, r, p, x = (vector.local for vector in vectors)
        product = a.matvec(p)
        before = dot(r, r, comm)
        alpha = before / dot(p, product, comm)
        x += alpha * p
        r -= alpha * product
        after = dot(r, r, comm)
        p *= after / before
        p += r
        state.steps += 1
        common.pause(args.pause)
        if after <= args.tolerance**2 * dot(b, b, comm):
            break

    rest = b - a.matvec(x)
    residual = np.sqrt(dot(rest, rest, comm) / dot(b, b, comm))
    error = comm.allreduce(float(np.abs(x - 1).max(initial=0.0)), MPI.MAX)
    result = common.digest(comm, x)
    if comm.rank == 0:
        print(f"{state.steps} steps, residual {residual:.3e}, error {error:.3e}")
        print(f"checksum {result}", flush=True)


if __name__ == "__main__":
    args = arguments()
    if args.make:
        make_poisson(args.make, args.matrix)
    else:
        main(args)
