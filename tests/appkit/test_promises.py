"""What the library promises across a resize, and the error of each promise that is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pliant.appkit.redistribution.range_exchange import NOT_ALIKE
from standin import Application

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

Run = Callable[..., Application]

LOOP = """
for it in job.steps(10**6, every=2):
    if stop(job): break
"""


def finish(app: Application) -> str:
    (app.output.parent / "stop").touch()
    codes = app.wait()
    assert set(codes) == {0}, (codes, app.text())
    return app.text()


def test_a_communicator_from_before_a_resize_raises_stale_handle(run: Run) -> None:
    app = run(
        """
        kept, joined = None, job.joining
        for it in job.steps(10**6, every=2):
            if not joined and it == 0:
                kept = job.comm
                assert kept.allreduce(1) == 2
            if kept is not None and kept is not job.comm:
                for use in (lambda: kept.rank, lambda: kept.Barrier()):
                    try:
                        use()
                    except StaleHandle as error:
                        say("StaleHandle", "use job.comm itself" in str(error))
                kept = None
            if stop(job): break
        """
    )
    assert app.grow(1).committed
    assert finish(app).count("StaleHandle True") == 4


def test_joining_ranks_have_nothing_before_their_first_safe_point(run: Run) -> None:
    app = run(
        """
        u = job.block("u", 12, constant=True)
        p = job.items("p", "f8")
        s = job.state(x=1)
        d = job.derive(lambda comm: comm.Dup())
        if job.joining:
            touches = (lambda: job.comm, lambda: u.local, lambda: u.start, lambda: p.local,
                       lambda: s.x, lambda: setattr(s, "x", 2), lambda: d.comm,
                       lambda: job.thaw(u), lambda: job.save())
            for touch in touches:
                try:
                    touch()
                except NotJoined as error:
                    say("NotJoined", "first safe point" in str(error))
            say("first", job.first)
        """,
        LOOP,
    )
    assert app.grow(1).committed
    text = finish(app)
    assert text.count("NotJoined True") == 9
    assert text.count("first False") == 1


def test_the_order_of_registration_counts(run: Run) -> None:
    app = run(
        """
        for name in ("u", "v") if not job.joining else ("v", "u"):
            job.block(name, 8)
        """,
        LOOP,
    )
    assert "RegistrationMismatch: registration 1: the joining rank has" in refused(app)
    assert app.shrink([1]).committed
    finish(app)


def refused(app: Application) -> str:
    """Why a growth is rolled back when processes compare what they have registered."""
    outcome = app.grow(1)
    assert (outcome.committed, outcome.stage) == (False, "check")
    world, rank = app.places.pop(max(app.places))
    assert world.wait(rank) == 1
    return outcome.reason


def test_functions_that_do_not_say_the_same_everywhere_are_found_out(run: Run) -> None:
    """In each resize, another function says something else on the joining rank."""
    app = run(
        """
        new = int(os.environ["PLIANT_RESIZE"])
        job.partition("a", 12, owner=lambda n: np.arange(12) % n if new == 1 else [0] * 12)
        job.partition("b", 12, owner=lambda n: (np.arange(12) + (new == 2)) % n)
        job.block_cyclic(
            "c", (12, 12), blocks=(2, 2), grid=lambda n: (1, n) if new == 3 else (n, 1)
        )
        job.block("d", 12, lengths=lambda n: [12 if i == (new == 4) else 0 for i in range(n)])
        job.block("u", 8)
        """,
        LOOP,
    )
    for name in "abcd":
        assert refused(app) == f"{name}: {NOT_ALIKE}"
    assert app.shrink([1]).committed
    finish(app)


def test_derived_communicators_are_registrations(run: Run) -> None:
    app = run(
        """
        def dup(comm):
            return comm.Dup()
        def split(comm):
            return comm.Split(comm.rank % 2, 0)
        job.block("u", 8)
        registered = {0: [dup, split], 1: [split, dup], 2: [dup], 3: [dup, split, split]}
        for make in registered[int(os.environ["PLIANT_RESIZE"])]:
            job.derive(make)
        """,
        LOOP,
    )
    split = "['derive', 'main.<locals>.split']"
    assert f"registration 2: the joining rank has {split}" in refused(app)
    assert f"only the job has {split}" in refused(app)
    assert f"only the joining rank has {split}" in refused(app)
    assert app.shrink([1]).committed
    finish(app)


def test_the_order_of_what_is_done_in_a_resize(run: Run) -> None:
    app = run(
        """
        u = job.block("u", 12, init=lambda index: 1)
        s = job.state(x=5)
        def derived(name):
            def make(comm):
                say(comm.rank, name, u.local.size, s.x)
                return comm.Dup()
            return make
        first, second = job.derive(derived("first")), job.derive(derived("second"))
        @job.before_resize
        def before(change):
            say(job.comm.rank, "before", first.comm.size, second.comm.size)
        @job.after_resize
        def after(change):
            say(job.comm.rank, "after", first.comm.size, second.comm.size, s.x)
        """,
        LOOP,
        size=1,
    )
    assert app.grow(1).committed
    lines = finish(app).splitlines()
    old = [line[2:] for line in lines if line.startswith("0")]
    new = [line[2:] for line in lines if line.startswith("1")]
    start = ["first 12 5", "second 12 5"]
    made = ["first 6 5", "second 6 5"]
    assert old == [*start, "before 1 1", *made, "after 2 2 5"], "data, communicators, hooks"
    assert new == [*made, "after 2 2 5"]


@pytest.mark.parametrize(
    ("begun", "kind"),
    [
        ("job.comm.Irecv(buffer, 0, 5)", "grow"),
        ("job.comm.Isend(buffer, 0, 5)", "shrink"),
        ("job.comm.Ibarrier()", "shrink"),
    ],
)
def test_a_request_that_is_pending_is_named(run: Run, begun: str, kind: str) -> None:
    app = run(
        f"""
        import pliant.appkit.mpi.disconnect
        pliant.appkit.mpi.disconnect.PENDING_S = 2.0
        buffer, pending = np.zeros(1 << 20), None
        for it in job.steps(10**6, every=2):
            if it == 1 and job.comm.rank == 1:
                pending = {begun}
            if stop(job): break
        """,
        size=3,
    )
    app.server.next("progress")
    world, rank = app.places[app.processors[1]]
    assert getattr(app, kind)(1 if kind == "grow" else [2]).committed
    assert world.wait(rank) == 1
    assert "pliant: PendingRequests: rank 1 cannot disconnect" in app.text()
    assert "probably a request" in app.text()
    assert any("PendingRequests: rank 1" in text for text in world.confessions)
