"""Constant data: moved before a resize, whatever happens then; every iteration verifies all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pliant.appkit.redistribution.transfer_plan import RankMap, plan_blocks
from pliant.protos import app_pb2 as pb
from standin import Application
from testkit import wait_until

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(400)]

APP = Path(__file__).parent.parent / "apps" / "constant.py"
#: Cells of what is not constant: rows of two numbers, and a vector that is like the matrix.
N, CELL_BYTES = 61, 24

Run = Callable[..., Application]


@pytest.fixture
def run(tmp_path: Path, started: list[Application]) -> Run:
    """Start the program under the stand-in; without ``folder`` it has none for checkpoints."""

    def begin(size: int, *orders: str, folder: bool = True) -> Application:
        environment = {"PLIANT_CHECKPOINT": str(tmp_path / "saves")} if folder else {}
        if orders:
            latched = (f"{order},once={tmp_path / 'latch'}{n}" for n, order in enumerate(orders))
            environment["PLIANT_FAILPOINTS"] = ";".join(latched)
        argv = [str(APP), str(tmp_path / "stop"), str(tmp_path / "words")]
        app = Application(tmp_path, argv, size, environment=environment)
        started.append(app)
        return app

    return begin


def finish(app: Application, tmp_path: Path) -> str:
    (tmp_path / "stop").touch()
    codes = app.wait()
    assert set(codes) == {0}, (codes, app.text())
    assert f"size {len(app.processors)} " in app.text()
    return app.text()


def changing(rank_map: RankMap) -> int:
    """Bytes that a resize moves of what is not constant."""
    return plan_blocks(N, rank_map, CELL_BYTES).bytes_moved


def written(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "saves").glob("constant-*"))


def say(tmp_path: Path, word: str) -> None:
    """Have the program do something, and wait until it has begun."""
    (tmp_path / "draft").write_text(word)
    (tmp_path / "draft").rename(tmp_path / "words")
    wait_until(lambda: not (tmp_path / "words").exists(), what="the program to listen")


def forget_joining_ranks(app: Application) -> None:
    for processor in [p for p in app.places if p not in app.processors]:
        world, rank = app.places.pop(processor)
        world.wait(rank)


def test_the_pause_carries_only_what_changes(run: Run, tmp_path: Path) -> None:
    app = run(2)
    assert app.grow(2).bytes_moved == changing(RankMap.expand(2, 4))
    folders = written(tmp_path)
    assert app.shrink([0, 2]).bytes_moved == changing(RankMap.shrink(4, [0, 2]))
    assert app.grow(1).bytes_moved == changing(RankMap.expand(2, 3))
    assert app.shrink([1, 2]).bytes_moved == changing(RankMap.shrink(3, [1, 2]))
    assert app.grow(1).bytes_moved == changing(RankMap.expand(1, 2))
    assert written(tmp_path) == folders, "they are written once"
    assert "pliant:" not in finish(app, tmp_path)


def test_without_a_folder_all_moves_in_the_pause(run: Run, tmp_path: Path) -> None:
    app = run(2, folder=False)
    assert app.grow(1).bytes_moved > 2 * changing(RankMap.expand(2, 3))
    assert app.shrink([0, 2]).committed
    assert "pliant:" not in finish(app, tmp_path)


def test_the_program_changes_them_when_it_says_so(run: Run, tmp_path: Path) -> None:
    app = run(2)
    say(tmp_path, "change")
    assert app.grow(1).bytes_moved == changing(RankMap.expand(2, 3))
    before = written(tmp_path)
    say(tmp_path, "change")
    assert app.shrink([1]).bytes_moved == changing(RankMap.shrink(3, [1]))
    after = written(tmp_path)
    assert (len(before), len(after)) == (1, 1)
    assert before != after, "what was written before is of no use"
    assert app.grow(1).bytes_moved == changing(RankMap.expand(2, 3))
    assert written(tmp_path) == after
    assert "pliant:" not in finish(app, tmp_path)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_thaw_on_one_rank_makes_all_ranks_move_constants_in_the_pause(
    run: Run, tmp_path: Path, rank: int
) -> None:
    app = run(2)
    assert app.grow(1).bytes_moved == changing(RankMap.expand(2, 3))
    say(tmp_path, f"alone {rank}")
    outcome = app.shrink([2])
    assert outcome.committed
    assert outcome.bytes_moved > changing(RankMap.shrink(3, [2]))
    assert "constant data moved in the pause" in finish(app, tmp_path)


@pytest.mark.parametrize("point", ["write", "read"])
def test_withdrawn_while_they_are_under_way(run: Run, tmp_path: Path, point: str) -> None:
    app = run(2, f"appkit.ahead.{point}@rank=0=delay:2")
    world, processors = app.prepare(1)
    app.go_grow(world, processors)
    wait_until(lambda: f"appkit.ahead.{point}: delay" in app.text(), what="the thread")
    app.server.send(pb.AppOrder(withdraw=pb.Withdraw(resize=1, reason="changed my mind")))
    assert app.server.next("withdrawn").withdrawn.resize == 1
    app.places.pop(processors[0])
    world.wait(0)  # it is not needed any more
    assert app.grow(2).bytes_moved == changing(RankMap.expand(2, 4))
    assert "resize 2 3" not in finish(app, tmp_path)


def test_a_joining_rank_that_dies_while_it_reads_disturbs_nobody(run: Run, tmp_path: Path) -> None:
    app = run(2, "appkit.newcomer.fetch@rank=1=kill")
    outcome = app.grow(2)
    assert (outcome.committed, outcome.stage, outcome.epoch) == (False, "join", 0)
    forget_joining_ranks(app)
    assert app.grow(1).bytes_moved == changing(RankMap.expand(2, 3))
    text = finish(app, tmp_path)
    assert text.count("resize 2 ") == text.count("resize 2 3") == 1, "the first is not told"


@pytest.mark.parametrize(
    "order",
    [
        "appkit.ahead.write@rank=1=raise",
        "appkit.ahead.write@rank=1=hang",
        "appkit.ahead.read@rank=1=raise",
        "appkit.ahead.read@rank=1=hang",
        "appkit.newcomer.fetch@rank=0=raise",
    ],
)
def test_what_one_process_has_not_got_moves_in_the_pause(
    run: Run, tmp_path: Path, order: str
) -> None:
    app = run(2, order)
    say(tmp_path, "change")
    outcome = app.grow(1)
    assert outcome.committed, outcome.reason
    assert outcome.bytes_moved > 2 * changing(RankMap.expand(2, 3))
    assert app.shrink([0]).bytes_moved == changing(RankMap.shrink(3, [0])), "the next one is"
    text = finish(app, tmp_path)
    assert "constant data moved in the pause of a resize: " in text


def test_slow_ranks_are_waited_for_before_the_pause(run: Run, tmp_path: Path) -> None:
    app = run(2, "appkit.ahead.write@rank=1=delay:2.5", "appkit.ahead.read@rank=1=delay:2.5")
    assert app.grow(1).bytes_moved == changing(RankMap.expand(2, 3)), "the rest was there before"
    assert "pliant: constant" not in finish(app, tmp_path)


def test_what_changes_through_an_older_view_moves_in_the_pause(run: Run, tmp_path: Path) -> None:
    app = run(2)
    assert app.grow(1).committed
    assert app.shrink([2]).committed
    say(tmp_path, "slip")
    outcome = app.grow(1)
    assert outcome.bytes_moved > changing(RankMap.expand(2, 3))
    assert app.shrink([0]).bytes_moved == changing(RankMap.shrink(3, [0]))
    assert "array 'copy' is constant, and was changed" in finish(app, tmp_path)


def test_damaged_files_are_not_used(run: Run, tmp_path: Path) -> None:
    app = run(2)
    assert app.grow(1).committed
    (folder,) = written(tmp_path)
    for path in (tmp_path / "saves" / folder).iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    outcome = app.shrink([0])
    assert outcome.committed
    assert outcome.bytes_moved > changing(RankMap.shrink(3, [0]))
    assert "is damaged" in finish(app, tmp_path)
