"""Topologies, and collectives among neighbors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from communicators import works
from listing import check, errors_of_appkit, operation
from mpi4py import MPI

GROUP = "Topologies"


@operation(
    GROUP,
    "Intracomm.Create_cart",
    "Cartcomm.Get_dim",
    "Cartcomm.Get_topo",
    "Cartcomm.Get_cart_rank",
    "Cartcomm.Get_coords",
    "Cartcomm.Shift",
    "Cartcomm.Sub",
    "Intracomm.Cart_map",
)
def cart(comm: MPI.Intracomm, _: Path) -> None:
    """Make a Cartesian grid of all ranks, with and without reordering."""
    dims = MPI.Compute_dims(comm.size, 2)
    for reorder in (False, True):
        grid = comm.Create_cart(dims, periods=[True, False], reorder=reorder)
        check(grid.Get_dim() == 2 and list(grid.Get_topo()[0]) == list(dims))
        check(grid.Get_cart_rank(grid.Get_coords(grid.rank)) == grid.rank)
        before, after = grid.Shift(0, 1)
        check(grid.sendrecv(grid.rank, after, source=before) == before)
        row = grid.Sub([False, True])
        check(row.size == dims[1])
        works(row)
        works(grid)
        row.Free()
        grid.Free()
    comm.Cart_map(dims, [True, False])


def _ring_graph(size: int) -> tuple[list[int], list[int]]:
    index, edges = [], []
    for rank in range(size):
        edges += [(rank - 1) % size, (rank + 1) % size]
        index.append(len(edges))
    return index, edges


@operation(
    GROUP,
    "Intracomm.Create_graph",
    "Graphcomm.Get_dims",
    "Graphcomm.Get_topo",
    "Graphcomm.Get_neighbors_count",
    "Graphcomm.Get_neighbors",
    "Intracomm.Graph_map",
)
def graph(comm: MPI.Intracomm, _: Path) -> None:
    """Make a graph topology in the form of a ring; every rank names all edges."""
    index, edges = _ring_graph(comm.size)
    made = comm.Create_graph(index, edges)
    check(made.Get_dims() == (comm.size, len(edges)))
    check(list(made.Get_topo()[1]) == edges)
    check(made.Get_neighbors_count(made.rank) == len(made.Get_neighbors(made.rank)) == 2)
    works(made)
    made.Free()
    comm.Graph_map(index, edges)


def _adjacent(comm: MPI.Intracomm) -> tuple[MPI.Distgraphcomm, list[int]]:
    around = [(comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size]
    return comm.Create_dist_graph_adjacent(around, around), around


@operation(
    GROUP,
    "Intracomm.Create_dist_graph_adjacent",
    "Distgraphcomm.Get_dist_neighbors_count",
    "Distgraphcomm.Get_dist_neighbors",
)
def dist_graph(comm: MPI.Intracomm, _: Path) -> None:
    """Make a distributed graph in the form of a ring; each rank names its own edges."""
    made, around = _adjacent(comm)
    check(made.Get_dist_neighbors_count()[:2] == (2, 2))
    check(list(made.Get_dist_neighbors()[0]) == around)
    works(made)
    made.Free()


@operation(GROUP, "Intracomm.Create_dist_graph")
def dist_graph_of_any_edges(comm: MPI.Intracomm, _: Path) -> None:
    """Make a ring by the call in which a rank may name any edges, also those of other ranks."""
    with errors_of_appkit():
        made = comm.Create_dist_graph([comm.rank], [1], [(comm.rank + 1) % comm.size])
    check(made.Get_dist_neighbors_count()[:2] == (1, 1))
    works(made)
    made.Free()


def _arguments(name: str, rank: int) -> tuple[tuple[Any, ...], np.ndarray]:
    """Return the arguments of a neighborhood collective, and the buffer into which it receives."""
    got = np.zeros(2)
    one, two = np.full(1, rank + 1.0), np.full(2, rank + 1.0)
    uneven = ([1, 1], [0, 1])
    doubles = [MPI.DOUBLE] * 2
    match name:
        case "allgather":
            return (one, got), got
        case "allgatherv":
            return (one, [got, *uneven, MPI.DOUBLE]), got
        case "alltoall":
            return (two, got), got
        case "alltoallv":
            return ([two, uneven, MPI.DOUBLE], [got, uneven, MPI.DOUBLE]), got
        case _:
            places = ([1, 1], [0, 8])
            return ([two, places, doubles], [got, places, doubles]), got


def _add(name: str) -> None:
    def test(
        comm: MPI.Intracomm, call: Callable[[MPI.Distgraphcomm, tuple[Any, ...]], None]
    ) -> None:
        made, around = _adjacent(comm)
        for _round in range(2):
            arguments, got = _arguments(name, comm.rank)
            call(made, arguments)
            check((got == np.array(around) + 1.0).all())
        made.Free()

    @operation("Neighbor collectives", f"Topocomm.Neighbor_{name}")
    def blocking(comm: MPI.Intracomm, _: Path) -> None:
        test(comm, lambda made, given: getattr(made, f"Neighbor_{name}")(*given))

    @operation("Neighbor collectives", f"Topocomm.Ineighbor_{name}")
    def nonblocking(comm: MPI.Intracomm, _: Path) -> None:
        test(comm, lambda made, given: getattr(made, f"Ineighbor_{name}")(*given).Wait())

    @operation("Neighbor collectives", f"Topocomm.Neighbor_{name}_init")
    def persistent(comm: MPI.Intracomm, _: Path) -> None:
        def call(made: MPI.Distgraphcomm, given: tuple[Any, ...]) -> None:
            request = getattr(made, f"Neighbor_{name}_init")(*given)
            for _round in range(2):
                request.Start()
                request.Wait()
            request.Free()

        test(comm, call)


for _name in ("allgather", "allgatherv", "alltoall", "alltoallv", "alltoallw"):
    _add(_name)


@operation("Neighbor collectives", "Topocomm.neighbor_allgather", "Topocomm.neighbor_alltoall")
def neighbor_objects(comm: MPI.Intracomm, _: Path) -> None:
    """Exchange pickled objects with neighbors."""
    made, around = _adjacent(comm)
    check(made.neighbor_allgather(comm.rank) == around)
    check(made.neighbor_alltoall([comm.rank] * 2) == around)
    made.Free()
