from __future__ import annotations

from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.server.registry.mpi_worlds import World, WorldRegistry

A, B = NodeName("a"), NodeName("b")


def test_the_book_knows_the_last_world_on_a_processor() -> None:
    worlds = WorldRegistry("c")
    job = JobId(1)
    for resize, processors in ((0, (0, 1, 2)), (4, (2, 5))):
        name = worlds.name(job, 1, ResizeId(resize))
        worlds.add(World(name, job, 1, ResizeId(resize), 1, processors, frozenset({A})))
    assert worlds.name(job, 1, ResizeId(4)) == "c.j1.r1.w4"
    world, rank = worlds.latest(job, 1, 2) or (None, None)
    assert world is not None
    assert (world.resize, rank) == (4, 0)
    assert worlds.latest(job, 1, 9) is None
    first = worlds.get("c.j1.r1.w0")
    assert first is not None
    worlds.drop(first)
    assert worlds.get(first.name) is None
    assert worlds.nodes(job, 1) == {A}
    assert [world.resize for world in worlds.forget(job)] == [4]
    worlds.drop(first)
    assert worlds.nodes(job, 1) == set()
