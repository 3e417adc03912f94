"""What the applications compute is what the equations say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testkit import run_python

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

NUMBER = r"([-+.\de]+)"


def run(name: str, *argv: str) -> str:
    return run_python("-m", f"pliant.examples.{name}", *argv).stdout


def numbers(pattern: str, text: str) -> list[float]:
    """Return the numbers that stand where the pattern has a #."""
    found = re.search(pattern.replace("#", NUMBER), text)
    assert found is not None, text
    return [float(number) for number in found.groups()]


def test_ft_has_the_same_energy_in_space_and_in_the_spectrum_and_it_fades() -> None:
    before = numbers("energy # in space, # in the spec", run("ft", "--size", "16", "--steps", "1"))
    after = numbers("energy # in space, # in the spec", run("ft", "--size", "16", "--steps", "9"))
    for in_space, in_spectrum in (before, after):
        assert in_space == pytest.approx(in_spectrum, rel=1e-11)
    assert 0 < after[0] < before[0]


def test_ft_is_the_transform_of_the_whole_field() -> None:
    done = run_python(
        "-c",
        "import numpy as np\n"
        "from mpi4py import MPI\n"
        "from pliant.examples import ft\n"
        "spectrum = ft.initial(8, slice(0, 8), MPI.COMM_SELF)\n"
        "field = ft.backward(spectrum, MPI.COMM_SELF)\n"
        "print(np.abs(np.fft.fftn(field) - spectrum).max() / np.abs(spectrum).max())\n"
        "ft.fade(spectrum, 0)\n"
        "k = np.fft.fftfreq(8, 1 / 8)\n"
        "square = k[:, None, None] ** 2 + k[:, None] ** 2 + k**2\n"
        "expected = np.fft.fftn(field) * np.exp(-4 * np.pi**2 * ft.ALPHA * square)\n"
        "print(np.abs(expected - spectrum).max() / np.abs(spectrum).max())\n",
    )
    assert all(float(line) < 1e-13 for line in done.stdout.split())


def test_cg_finds_the_solution_that_is_known(tmp_path: Path) -> None:
    matrix = str(tmp_path / "poisson.mtx")
    run("cg", "--make", "20", matrix)
    residual, error = numbers("residual #, error #", run("cg", matrix, "--tolerance", "1e-10"))
    assert residual < 2e-10
    assert error < 1e-8


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected '%%MatrixMarket matrix coordinate real symmetric'"),
        ("%%MatrixMarket matrix array real general\n", "coordinate real symmetric'"),
        ("%%MatrixMarket matrix coordinate real symmetric\n3 4 0\n", "as many rows as columns"),
    ],
)
def test_cg_tells_what_is_wrong_with_a_file(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "wrong.mtx"
    path.write_text(text)
    done = run_python("-m", "pliant.examples.cg", str(path), check=False)
    assert done.returncode != 0
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_nbody_keeps_energy_and_momentum() -> None:
    text = run("nbody", "--stars", "100", "--steps", "100")
    begin, end = numbers("energy # -> #", text)
    assert begin < 0, "the stars are bound"
    assert end == pytest.approx(begin, rel=1e-3)
    assert numbers("momentum #", text)[0] < 1e-14


def test_md_keeps_energy_and_momentum() -> None:
    text = run("md", "--steps", "50")
    begin, end = numbers("energy # -> #", text)
    assert end == pytest.approx(begin, rel=1e-4)
    assert numbers("momentum #", text)[0] < 1e-11


def test_md_finds_all_pairs() -> None:
    done = run_python(
        "-c",
        "import numpy as np\n"
        "from mpi4py import MPI\n"
        "from pliant.examples import md\n"
        "box = md.Box(5)\n"
        "atoms = md.crystal(box, 0, 1)\n"
        "atoms['place'] += np.random.default_rng(1).normal(0, 0.05, atoms['place'].shape)\n"
        "atoms['place'] %= box.length\n"
        "atoms['cell'] = box.cell(atoms['place'])\n"
        "atoms = md.in_order(atoms)\n"
        "potential = md.attract(atoms, box, MPI.COMM_SELF)\n"
        "away = atoms['place'][:, None] - atoms['place']\n"
        "away -= box.length * np.rint(away / box.length)\n"
        "square = (away**2).sum(axis=2)\n"
        "np.fill_diagonal(square, np.inf)\n"
        "near = square < md.RANGE**2\n"
        "sixth = np.where(near, square, np.inf) ** -3\n"
        "push = 24 * sixth * (2 * sixth - 1) / np.where(near, square, np.inf)\n"
        "force = (push[:, :, None] * away).sum(axis=1)\n"
        "each = (4 * sixth * (sixth - 1) - md.SHIFT * near).sum(axis=1)\n"
        "print(np.abs(force - atoms['force']).max() / np.abs(force).max())\n"
        "print(np.abs(each - potential).max() / np.abs(each).max())\n"
        "print(0 if md.ATOM.itemsize == 112 else 1)\n",
    )
    assert all(float(line) < 1e-12 for line in done.stdout.split())


def test_amr_loses_nothing_refines_and_coarsens() -> None:
    text = run("amr", "--steps", "600")
    begin, end = numbers("integral # -> #", text)
    assert end == pytest.approx(begin, rel=1e-13)
    blocks, most = numbers("# blocks, at most #", text)
    assert blocks == 16, "the pulse has faded"
    assert most > 5 * blocks


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["ft", "--size", "24"], "--size 24: expected a power of two"),
        (["md", "--edge", "4"], "--edge 4: a box of less than 5 holds no 3 cells along an edge"),
        (["nbody", "--stars", "none"], "'none': expected a whole number from 1 on"),
    ],
)
def test_wrong_arguments_are_told(argv: list[str], reason: str) -> None:
    done = run_python("-m", f"pliant.examples.{argv[0]}", *argv[1:], check=False)
    assert done.returncode == 2
    assert reason in done.stderr
