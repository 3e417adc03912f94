"""Programs of several shapes that are resized, and resizes that fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pliant.protos import app_pb2 as pb
from standin import Application

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

Run = Callable[..., Application]


def finish(app: Application) -> str:
    (app.output.parent / "stop").touch()
    codes = app.wait()
    assert set(codes) == {0}, (codes, app.text())
    return app.text()


def forget_joining_ranks(app: Application, code: int | None = None) -> None:
    """Collect processes that did not become part of the application."""
    for processor in [p for p in app.places if p not in app.processors]:
        world, rank = app.places.pop(processor)
        ended = world.wait(rank)
        assert code is None or ended == code


LOOP = """
for it in job.steps(10**6, every=2):
    if stop(job): break
"""


def test_joining_ranks_skip_loops_that_are_over(run: Run) -> None:
    app = run(
        """
        first = job.state(total=0)
        for it in job.steps(10, every=2):
            first.total += 1
        offset = job.once(lambda: job.comm.size)
        if not job.joining:
            assert first.total == 10
        extra = job.block("extra", 9, init=lambda index: offset)
        for it in job.steps(10**6, every=2):
            assert (extra.local == offset).all() and first.total == 10
            if stop(job): break
        for it in job.steps(3):
            job.comm.Barrier()
        say("end", offset)
        """
    )
    assert app.server.next("progress").progress.iterations == 10**6
    assert app.grow(1).committed
    assert app.shrink([0, 1]).committed
    assert app.grow(1).committed
    assert finish(app).count("end 2") == 2


def test_joining_ranks_come_into_a_loop_whose_condition_is_a_state(run: Run) -> None:
    app = run(
        """
        state = job.state(error=1.0, steps=0)
        while job.joining or state.error > 0:
            job.safe_point()
            state.error = job.comm.allreduce(0.0 if stop(job) else 1.0, MPI.MIN)
            state.steps += 1
        say("end", job.comm.allgather(state.steps).count(state.steps))
        """
    )
    assert app.grow(1).committed
    assert app.shrink([0]).committed
    assert app.grow(1).committed
    assert finish(app).count("end 3") == 3


def test_a_while_loop_before_another_loop_keeps_joining_ranks_out(run: Run) -> None:
    app = run(
        """
        state = job.state(steps=0)
        while job.joining or state.steps < 3:
            job.safe_point()
            state.steps += 1
        """,
        LOOP,
    )
    app.server.next("progress")
    outcome = app.grow(1)
    assert not outcome.committed
    assert "ended before it joined" in outcome.reason
    forget_joining_ranks(app, 1)
    assert "a while-loop that the job has already left" in finish(app)


def test_blocking_waits_sleep_instead_of_polling(run: Run) -> None:
    app = run(
        """
        import resource
        from pliant.appkit.mpi.blocking_wait import blocking_waits
        def naps():
            return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        def wait():
            if job.comm.rank == 0:
                time.sleep(0.5)
            before = naps()
            job.comm.Barrier()
            return naps() - before
        for it in job.steps(1):
            impatient = wait()
            with blocking_waits():
                patient = wait()
            assert job.comm.rank == 0 or patient > 100 > impatient, (patient, impatient)
        """,
        LOOP,
    )
    finish(app)


def test_what_rank_0_has_in_its_state_counts(run: Run) -> None:
    app = run(
        """
        state = job.state(rank=None, items=[])
        if not job.joining:
            state.rank = None
        @job.after_resize
        def check(change):
            assert state.rank == 0, state.rank
            say("after", change.before, change.after, change.committed)
        @job.before_resize
        def before(change):
            state.rank = job.comm.rank
            say("before", change.before, change.after, change.leaving)
        """,
        LOOP,
    )
    app.grow(1)
    app.shrink([0])
    text = finish(app)
    assert text.count("before 2 3 False") == 2
    assert text.count("after 2 3 True") == 3
    assert text.count("before 3 2 True") == 1
    assert text.count("after 3 2 True") == 2


def test_a_leaver_unwinds_and_runs_its_exit_handlers(run: Run) -> None:
    app = run(
        """
        atexit.register(lambda: print("exit handler", flush=True))
        try:
            try:
                for it in job.steps(10**6, every=2):
                    if stop(job): break
            except Exception:
                print("an ordinary except clause must not see it")
            except BaseException as error:
                print("swallowed", type(error).__name__)
            for touch in (lambda: job.comm, lambda: job.first, lambda: next(job.steps(1))):
                try:
                    touch()
                except JobLeave:
                    print("again")
        finally:
            print("finally", flush=True)
        """,
        after="print('after main')",
    )
    assert app.shrink([1]).committed
    text = finish(app)
    assert "swallowed JobLeave" in text
    assert text.count("again") == 3
    assert text.count("finally") == 2
    assert text.count("exit handler") == 2
    assert text.count("after main") == 1
    assert "must not see it" not in text


def test_another_registration_is_refused_and_the_job_goes_on(run: Run) -> None:
    app = run(
        """
        job.block("u", 8 if not job.joining else 9)
        """,
        LOOP,
    )
    outcome = app.grow(2)
    assert not outcome.committed
    assert outcome.stage == "check"
    assert "registration 1" in outcome.reason
    forget_joining_ranks(app, 1)
    assert app.shrink([1]).committed
    assert "registration 1" in finish(app)


def test_another_kind_is_refused_where_facts_are_exchanged_first(run: Run) -> None:
    app = run(
        """
        items = job.items("p", "f8", init=lambda rank, _: np.ones(rank + 1))
        more = job.items("q", "f8") if job.joining else job.csr("A", (4, 4), balance="nnz")
        """,
        LOOP,
    )
    outcome = app.grow(1)
    assert not outcome.committed
    assert outcome.stage == "check"
    assert "registration 2" in outcome.reason
    forget_joining_ranks(app, 1)
    assert app.shrink([1]).committed
    finish(app)


@pytest.mark.parametrize(
    ("registered", "reason"),
    [
        (
            "job.items('p', 'f8', init=lambda *_: np.ones(4), "
            "owner=lambda items, size: np.full(len(items), 1 // (3 - size)))",
            "items 'p': owner raised ZeroDivisionError",
        ),
        ("job.block('u', 8, lengths=lambda n: [8 // n] * n)", "lengths(3) gave [2, 2, 2]"),
        ("job.partition('u', 8, owner=lambda n: [n // 3] * 8)", ""),
        (
            "job.custom('v', init=lambda *_: 0, pack=lambda v, n: [b'1'] * n, "
            "unpack=lambda parts, rank, n: 1 // (rank - 2))",
            "unpack(parts, 2, 3) raised ZeroDivisionError",
        ),
    ],
)
def test_a_function_that_fails_at_a_size_is_rolled_back(
    run: Run, registered: str, reason: str
) -> None:
    app = run(registered, LOOP)
    outcome = app.grow(1)
    assert outcome.committed is not bool(reason), outcome.reason
    assert reason in outcome.reason
    if reason:
        forget_joining_ranks(app)
    finish(app)


def test_a_state_that_cannot_be_sent_is_rolled_back(run: Run) -> None:
    app = run("state = job.state(f=0)\nif not job.joining: state.f = lambda: 0", LOOP)
    outcome = app.grow(1)
    assert not outcome.committed
    assert outcome.stage == "check"
    assert "the value of 'f' in job.state, a function, cannot be pickled" in outcome.reason
    forget_joining_ranks(app)
    finish(app)


def test_a_joining_rank_that_dies_after_it_was_called(run: Run) -> None:
    app = run(
        """
        import pliant.appkit.mpi.connect
        pliant.appkit.mpi.connect.JOIN_TIMEOUT_S = 2
        if job.joining:
            pliant.appkit.resize.executor.Executor._connect = lambda self, port: os._exit(9)
        u = job.block("u", 12, init=lambda index: 1)
        ring = job.derive(lambda comm: comm.Dup())
        @job.after_resize
        def check(change):
            assert not change.committed or change.leaving is False
        for it in job.steps(10**6, every=2):
            assert ring.comm.allreduce(u.local.sum()) == 12
            if stop(job): break
        """
    )
    outcome = app.grow(2)
    assert not outcome.committed
    assert outcome.stage == "join"
    assert list(outcome.processors) == [0, 1]
    forget_joining_ranks(app, 9)
    assert app.shrink([0]).committed
    finish(app)


def test_the_program_answers_offers(run: Run) -> None:
    app = run(
        """
        @job.on_offer
        def answer(offer):
            if offer.proposed == 3: return False
            if offer.proposed == 4: return 5
            if offer.proposed == 6: raise KeyError("oops")
        """,
        LOOP,
    )
    app.server.next("progress")
    assert app.offer(3).verb == pb.VERB_REJECT
    counter = app.offer(4)
    assert (counter.verb, counter.items[0].sizes) == (pb.VERB_COUNTER, "5")
    assert "oops" in app.offer(6).reason
    assert app.grow(3).committed
    finish(app)


def test_messages_are_cut_and_axes_may_be_any(run: Run) -> None:
    app = run(
        """
        import pliant.appkit.redistribution.range_exchange
        pliant.appkit.redistribution.range_exchange.CHUNK_BYTES = 64
        shapes = [((50, 7), 0), ((7, 50), 1), ((3, 40, 5), 1), ((2, 3, 30), 2), ((1, 40, 2), 1)]
        def values(index, shape):
            return np.arange(np.prod(shape)).reshape(shape)[index]
        arrays = [
            job.block(str(shape), shape, axis=axis, halo=1,
                      init=lambda index, shape=shape: values(index, shape))
            for shape, axis in shapes
        ]
        table = job.replicated("table", 1000, init=lambda: np.arange(1000))
        for it in job.steps(10**6, every=2):
            for u in arrays:
                index = [slice(0, n) for n in u.shape]
                index[u.axis] = slice(u.start, u.stop)
                assert np.array_equal(u.local, values(tuple(index), u.shape))
            assert np.array_equal(table.local, np.arange(1000))
            if stop(job): break
        """
    )
    assert app.grow(2).committed
    assert app.shrink([0, 2]).committed
    finish(app)


def test_a_stale_view_is_read_only(run: Run) -> None:
    app = run(
        """
        u = job.block("u", 12)
        kept, joined = None, job.joining
        for it in job.steps(10**6, every=2):
            if not joined and it == 0:
                kept = u.local
            if kept is not None and kept is not u.local:
                try:
                    kept[:] = 1
                except ValueError:
                    print("read-only", flush=True)
                kept = None
            if stop(job): break
        """
    )
    assert app.grow(1).committed
    assert finish(app).count("read-only") == 2


def test_an_error_in_main_ends_with_1_and_a_traceback(run: Run) -> None:
    app = run("for it in job.steps(10**6):\n    if stop(job): raise KeyError('mine')")
    app.server.next("progress")
    (app.output.parent / "stop").touch()
    assert all(code != 0 for code in app.wait())
    assert "KeyError: 'mine'" in app.text()
