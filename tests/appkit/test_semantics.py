"""What the library promises to a program, in an ordinary MPI program without a server."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

from testkit import run_python

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

HEAD = """
import sys
import numpy as np
from mpi4py import MPI
from pliant.appkit import *

"""


def program(body: str, sizes: str = "1-4", after: str = "") -> str:
    inner = textwrap.indent(textwrap.dedent(body), "    ")
    main = f'@malleable(sizes="{sizes}")\ndef main(job):\n{inner}'
    return f"{HEAD}{main}\nmain()\n{textwrap.dedent(after)}"


def alone(body: str, **parts: str) -> str:
    return run_python("-c", program(body, **parts)).stdout


def with_mpiexec(n: int, body: str) -> subprocess.CompletedProcess[str]:
    mpiexec = Path(sysconfig.get_path("scripts")) / "mpiexec"
    return subprocess.run(
        [mpiexec, "-n", str(n), sys.executable, "-c", program(body)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


def raises(error: str, statement: str) -> str:
    return f"""
try:
    {statement}
except {error} as error:
    print(type(error).__name__)
"""


#: Errors of statements, each of which is in a main function of its own.
MISTAKES = [
    ("NotJoined", "job.comm.rank"),
    ("NotJoined", "job.derive(lambda comm: comm.Dup()).comm"),
    ("DuplicateName", "job.block('u', 3), job.replicated('u', 3)"),
    ("LateRegistration", "for _ in job.steps(1): job.block('u', 3)"),
    ("LateRegistration", "for _ in job.steps(1): job.state(a=1)"),
    ("LoopError", "for _ in job.steps(1): next(job.steps(1))"),
    ("LoopError", "for _ in job.steps(1): job.safe_point()"),
    ("LoopError", "for _ in range(2): job.safe_point(); job.safe_point()"),
    ("ValueError", "job.steps(1, every=0)"),
    ("TypeError", "job.steps(10.0)"),
    ("TypeError", "job.steps(10, every='5')"),
    ("ValueError", "job.block('u', 10.5)"),
    ("ValueError", "job.block('u', (10.5, 3))"),
    ("ValueError", "job.block('u', (2, 2), axis=2)"),
    ("ValueError", "job.block('u', (2, 2), halo=-1)"),
    ("ValueError", "job.block('u', (2, 2), dtype=object)"),
    ("DistributionError", "job.block('u', 5, init=lambda index: np.zeros(4))"),
    ("DistributionError", "job.block('u', 5, init=lambda index: 'text')"),
    ("DistributionError", "job.replicated('u', 5, init=lambda: [1, 2])"),
    ("DistributionError", "job.root_only('u', 5, init=lambda: [1, 2])"),
    ("DistributionError", "job.cyclic('u', 5, init=lambda index: np.zeros((5, 5)))"),
    ("DistributionError", "job.partition('u', 2, owner=[0, 0], init=lambda own: own[:0])"),
    ("DistributionError", "job.items('u', 'f8', init=lambda *_: np.zeros((5, 5)))"),
    ("DistributionError", "job.block('u', 5, lengths=lambda size: [4])"),
    ("DistributionError", "job.block('u', 5, lengths=lambda size: 1 / 0)"),
    ("DistributionError", "job.block('u', 5, like=job.csr('A', (4, 4)))"),
    ("ValueError", "job.items('p', 'f8', weight=len, owner=len)"),
    ("ValueError", "job.csr('A', (4, 4, 4))"),
    ("ValueError", "job.cyclic('u', 5, axis=1)"),
    ("ValueError", "job.block_cyclic('u', (5, 5), blocks=(0, 1))"),
    ("ValueError", "job.block_cyclic('u', (5, 5, 5))"),
    ("DistributionError", "job.block_cyclic('u', (5, 5), grid=lambda size: (size, 2))"),
    ("DistributionError", "job.partition('u', 5, owner=lambda size: [0])"),
    ("DistributionError", "job.partition('u', 2, owner=lambda size: [0, 1])"),
    ("ValueError", "job.rng('r', -1)"),
    ("ValueError", "job.root_only('l', 1, dtype=object)"),
    ("DuplicateName", "job.rng('r', 1), job.root_only('r', 1)"),
    ("ValueError", "job.block('u', 5, halo=1, constant=True)"),
    ("ValueError", "job.block('u', 4, like=job.csr('A', (4, 4)), constant=True)"),
    ("ValueError", "job.items('p', 'f8', weight=len, constant=True)"),
    ("DistributionError", "job.thaw(job.block('u', 5))"),
    ("NotJoined", "job.items('p', 'f8').counts()"),
    ("NotJoined", "job.csr('A', (4, 4)).rebalance()"),
    ("AttributeError", "job.state(a=1).b"),
    ("AttributeError", "job.state(a=1).b = 2"),
]


def test_mistakes_show_in_the_first_run() -> None:
    code = HEAD
    for place, (_, statement) in enumerate(MISTAKES):
        body = textwrap.indent(raises("Exception", statement), "    ")
        code += f'@malleable(sizes="1-4")\ndef main{place}(job):{body}\nmain{place}()\n'
    raised = run_python("-c", code).stdout.split()
    statements = [statement for _, statement in MISTAKES]
    assert list(zip(raised, statements, strict=True)) == MISTAKES


def test_the_communicator_is_lent_to_initialisation() -> None:
    body = """
    u = job.block("u", (2, 1), init=lambda index: job.comm.size + index[0].start)
    r = job.replicated("r", 3, init=lambda: [job.comm.rank] * 3)
    n = job.once(lambda: job.comm.size)
    print(u.local.tolist(), u.local.dtype, r.local.tolist(), n, job.first, job.joining)
    """
    expected = "[[1.0], [1.0]] float64 [0.0, 0.0, 0.0] 1 True False"
    assert alone(body).strip() == expected


def test_a_derived_communicator_is_one_of_its_own() -> None:
    body = """
    class kept: pass
    def first(comm):
        kept.comm_now = comm.Dup()
        return kept.comm_now
    job.derive(first)
    for wrong in (
        lambda comm: comm,
        lambda comm: MPI.COMM_WORLD,
        lambda comm: MPI.COMM_SELF,
        lambda comm: kept.comm_now,
        lambda comm: None,
    ):
        try:
            job.derive(wrong)
        except RegistrationError as error:
            print(error)
    left_out = job.derive(lambda comm: comm.Split(MPI.UNDEFINED))
    for _ in job.steps(1):
        print(left_out.comm == MPI.COMM_NULL, len(job._data.derived))
    """
    *refusals, rest = alone(body).splitlines()
    assert len(refusals) == 5
    for refusal in refusals:
        assert refusal.startswith("job.derive: the function returned")
        assert "lambda comm: comm.Dup()" in refusal
    assert rest == "True 2", "what was refused is not registered"


def test_handles_are_stale_after_main() -> None:
    body = "global kept, job_\nkept, job_ = job.block('u', 3), job"
    after = raises("StaleHandle", "kept.local") + raises("StaleHandle", "job_.comm")
    assert alone(body, after=after).split() == ["StaleHandle", "StaleHandle"]


def test_loops_count_and_break() -> None:
    body = """
    seen = []
    for it in job.steps(5, every=2):
        seen.append(it)
        if it == 3:
            break
    for it in job.steps(2):
        seen.append(job.comm.size)
    while len(seen) < 8:
        job.safe_point()
        seen.append(-1)
    print(seen)
    """
    assert alone(body).strip() == "[0, 1, 2, 3, 1, 1, -1, -1]"


def test_constants_are_frozen_from_the_first_loop_on() -> None:
    body = """
    u = job.block("u", 3, constant=True)
    p = job.items("p", "f8", init=lambda *_: np.zeros(2), constant=True)
    u.local = 1
    u.local[0] = 5
    def refusals():
        found = []
        for change in ("u.local[0] = 6", "u.local = 7", "p.local = [1.0]"):
            try:
                exec(change, {"u": u, "p": p})
            except (ValueError, AppkitError) as error:
                found.append(type(error).__name__)
        return found
    for it in job.steps(4, every=2):
        if it == 1:
            job.thaw(u), job.thaw(p)
        print(*refusals(), "|", *u.local, len(p))
    """
    refused = "ValueError DistributionError DistributionError"
    assert alone(body).splitlines() == [
        f"{refused} | 5.0 1.0 1.0 2",
        "| 7.0 7.0 7.0 1",
        f"{refused} | 7.0 7.0 7.0 1",
        f"{refused} | 7.0 7.0 7.0 1",
    ]


def test_views_and_ranges() -> None:
    body = """
    u = job.block("u", (5, 3), axis=1, halo=2, dtype="i4", init=lambda index: 7)
    print(u.local.shape, u.with_halo.shape, u.start, u.stop, u.shape, int(u.with_halo.sum()))
    u.local = np.ones((5, 3))
    print(int(u.with_halo.sum()), list(u.layout.blocks()))
    """
    assert alone(body).splitlines() == ["(5, 3) (5, 7) 0 3 (5, 3) 105", "15 [(0, 3)]"]


def test_a_program_alone_loads_no_grpc_and_returns_what_main_returns() -> None:
    body = "for _ in job.steps(3): pass\nreturn 1"
    after = "print(sorted({'grpc', 'google', 'sqlalchemy'} & set(sys.modules)), main.__name__)"
    assert alone(body, after=after).strip() == "[] main"


@pytest.mark.parametrize(("statement", "code"), [("sys.exit(3)", 3), ("raise KeyError('x')", 1)])
def test_exit_codes(statement: str, code: int) -> None:
    done = run_python("-c", program(statement), check=False)
    assert done.returncode == code
    assert ("KeyError: 'x'" in done.stderr) == (code == 1)


def test_an_error_on_one_rank_ends_all() -> None:
    body = """
    for it in job.steps(10):
        if it == 3 and job.comm.rank == 1:
            raise KeyError("one rank")
        job.comm.Barrier()
    """
    done = with_mpiexec(2, body)
    assert done.returncode != 0
    assert "KeyError: 'one rank'" in done.stderr


@pytest.mark.parametrize("kind", ["before_resize", "after_resize"])
def test_a_hook_that_raises_is_named(kind: str, tmp_path: Path) -> None:
    body = f"""
    @job.{kind}
    def look(change):
        raise KeyError("no such field")
    for _ in job.steps(3, save_every=1): pass
    """
    environment = {"PLIANT_CHECKPOINT": str(tmp_path)}
    done = run_python("-c", program(body), env=environment, check=False)
    assert done.returncode == 1
    assert "KeyError: 'no such field'" in done.stderr
    said = f"raised by the {kind} hook 'look' at a change from 1 to 1: catch it there"
    assert said in done.stderr


def test_any_number_of_processes_is_an_ordinary_program() -> None:
    body = """
    u = job.block("u", 7, init=lambda index: np.arange(7)[index])
    for _ in job.steps(1):
        parts = job.comm.gather((u.start, u.stop, float(u.local.sum())))
    if job.first:
        print(parts)
    """
    done = with_mpiexec(3, body)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[(0, 2, 1.0), (2, 4, 5.0), (4, 7, 15.0)]"


def test_wrong_sizes_are_found_at_import() -> None:
    wrong = {
        'sizes="4-2"': "minimum 4 is above",
        'sizes="1-8:pow2", prefer=3': "preferred size 3",
        "prefer=3": "needs sizes=",
        "sizes=4": "sizes=4 is no text; write sizes='4'",
        "sizes='1-8', prefer='2'": "prefer='2' is no whole number",
        "print": "write it with parentheses, as in @malleable(sizes='1-8')",
    }
    code = f"{HEAD}\n"
    for arguments in wrong:
        code += f"try:\n    malleable({arguments})(lambda job: None)\n"
        code += "except Exception as error:\n    print(error)\n"
    printed = run_python("-c", code).stdout.splitlines()
    for message, line in zip(wrong.values(), printed, strict=True):
        assert message in line
