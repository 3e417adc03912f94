"""Diffusion in a periodic box by 3-D Fourier transforms, like FT of the NAS parallel benchmarks.

The equation du/dt = alpha laplace(u) is solved in the space of wave numbers k, in which
each mode decays independently::

    U(k, t + dt) = U(k, t) exp(-4 pi^2 alpha |k|^2 dt)

In each step, the spectrum is transformed back to evaluate the field. The spectrum is distributed in
slabs along y. It is transformed along z first; then an all-to-all exchange makes slabs along z, and
the other two directions are transformed. The program runs on any number of processes, but best on
powers of two. If it is offered another size, it accepts the next lower power of two::

    python -m pliant.examples.ft --size 32 --steps 6
    mpiexec -n 4 python -m pliant.examples.ft
    jobsub -n 1-8 python -m pliant.examples.ft --size 128 --steps 50

The checksum is the same on any number of processes and after any resizes: each line is transformed
on one process, modes are multiplied one by one, and sums are exact (`common.exact_sum`).
"""

import argparse

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit import Job, Offer, malleable
from pliant.examples import common

Field = NDArray[np.complex128]
#: Diffusivity times the length of a step, in box lengths squared.
ALPHA = 1e-6
SEED = 314159265


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = common.options(__doc__, steps=6)
    parser.add_argument(
        "--size", type=common.positive, default=32, help="points in each direction (%(default)s)"
    )
    args = parser.parse_args(argv)
    if args.size != power_of_two(args.size):
        parser.error(f"--size {args.size}: expected a power of two")
    return args


def power_of_two(number: int) -> int:
    """Return the largest power of two that is at most the number."""
    return 1 << number.bit_length() - 1


def transpose(field: Field, comm: MPI.Intracomm, axis: int) -> Field:
    """Return a field in slabs along ``axis`` (0 or 1) as slabs along the other of these axes."""
    length = field.shape[1 - axis]
    cuts = [length * rank // comm.size for rank in range(comm.size + 1)]
    pieces = np.split(field, cuts[1:-1], axis=1 - axis)
    mine = cuts[comm.rank + 1] - cuts[comm.rank]
    planes = np.diff(cuts)
    received = np.empty(length * mine * length, field.dtype)
    comm.Alltoallv(
        [np.concatenate([piece.ravel() for piece in pieces]), [piece.size for piece in pieces]],
        [received, planes * mine * length],
    )
    blocks = np.split(received, np.cumsum(planes * mine * length)[:-1])
    shapes = [(k, mine, length) if axis == 0 else (mine, k, length) for k in planes]
    return np.concatenate(
        [block.reshape(shape) for block, shape in zip(blocks, shapes, strict=True)], axis=axis
    )


def initial(size: int, planes: slice, comm: MPI.Intracomm) -> Field:
    """Return this process's slab of the spectrum of a random field.

    Each plane of the slab has its own random generator, so the field does not depend on the number
    of processes.
    """
    field = np.empty((planes.stop - planes.start, size, size), np.complex128)
    for place, plane in enumerate(range(planes.start, planes.stop)):
        random = np.random.default_rng([SEED, plane])
        field[place].real, field[place].imag = random.random((2, size, size))
    return np.fft.fft(transpose(np.fft.fftn(field, axes=(1, 2)), comm, 0), axis=0)


def backward(spectrum: Field, comm: MPI.Intracomm) -> Field:
    """Return the field, in slabs along z, of a spectrum in slabs along y."""
    return np.fft.ifftn(transpose(np.fft.ifft(spectrum, axis=0), comm, 1), axes=(1, 2))


def fade(spectrum: Field, first: int) -> None:
    """Let all modes decay by one step; ``first`` is the first index along y of the local slab."""
    size, here, _ = spectrum.shape
    decay = np.exp(-4 * np.pi**2 * ALPHA * np.fft.fftfreq(size, 1 / size) ** 2)
    factor = decay[:, None, None] * decay[first : first + here, None] * decay
    spectrum.real *= factor
    spectrum.imag *= factor


def energy(field: Field, comm: MPI.Intracomm) -> float:
    return common.exact_sum(comm, field.real**2 + field.imag**2)


def sample(field: Field, comm: MPI.Intracomm) -> complex:
    """Sum the field at the 1024 points of FT's checksum."""
    size = field.shape[1]
    first = size * comm.rank // comm.size
    j = np.arange(1, 1025)
    z = 5 * j % size - first
    here = (z >= 0) & (z < len(field))
    points = field[z[here], 3 * j[here] % size, j[here] % size]
    return complex(common.exact_sum(comm, points.real), common.exact_sum(comm, points.imag))


@malleable(sizes="1-64")
def main(job: Job, args: argparse.Namespace) -> None:
    n = args.size
    spectrum = job.block(
        "spectrum",
        (n, n, n),
        axis=1,
        dtype=np.complex128,
        init=lambda index: initial(n, index[1], job.comm),
    )
    seen = job.state(total=0j)
    common.tell_resizes(job)

    @job.on_offer
    def hand_back_surplus(offer: Offer) -> int:
        return power_of_two(offer.proposed)

    for _ in job.steps(args.steps, every=args.every, save_every=args.save_every):
        comm, modes = job.comm, spectrum.local
        surplus = comm.size - power_of_two(comm.size)
        if surplus and job.requested is None:
            job.release(surplus, why="it runs best on a power of two")
        fade(modes, spectrum.start)
        field = backward(modes, comm)
        seen.total += sample(field, comm)
        common.pause(args.pause)

    in_space, in_spectrum = energy(field, comm), energy(modes, comm) / n**3
    result = common.digest(comm, np.moveaxis(modes, 1, 0))
    if comm.rank == 0:
        print(f"{args.steps} steps, sum {seen.total:.12g}")
        print(f"energy {in_space:.12g} in space, {in_spectrum:.12g} in the spectrum")
        print(f"checksum {result}", flush=True)


if __name__ == "__main__":
    main(arguments())
