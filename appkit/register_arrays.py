"""The calls of ``Job`` that register arrays, matrices and items."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.kinds.block_array import BlockArray, Init
from pliant.appkit.kinds.csr_matrix import CsrInit, CsrMatrix
from pliant.appkit.kinds.cyclic_array import CyclicArray, CyclicInit, Grid
from pliant.appkit.kinds.item_distribution import (
    ByOwner,
    Even,
    ItemDistribution,
    Owner,
    Weight,
    Weighted,
)
from pliant.appkit.kinds.items import ItemInit, Items
from pliant.appkit.kinds.partitioned_array import PartitionedArray, PartitionInit, spread_parts
from pliant.appkit.kinds.replicated_and_root_arrays import ReplicatedArray
from pliant.appkit.redistribution.block_partitioning import Lengths, LengthSplit, Split
from pliant.appkit.redistribution.cyclic_layout import square_grid
from pliant.appkit.registration import Registration, as_counts, as_shape


class DataRegistration(Registration):
    """The methods of `Job` that register arrays, matrices and items.

    They are called before the first loop, and alike on every process. Every method raises
    ``DuplicateName`` if the name is taken, ``LateRegistration`` inside a loop, and ``ValueError``
    if shape, type or another argument is invalid. ``init`` functions are called at the first start
    only; joining processes receive their part. A ``constant`` array does not change from the first
    loop on, so it is moved before a resize, while the program computes. After `Job.thaw`, the
    program may change it until the next safe point.
    """

    def block(  # noqa: PLR0913 - each is a keyword that most programs leave out
        self,
        name: str,
        shape: int | tuple[int, ...],
        *,
        axis: int = 0,
        halo: int = 0,
        dtype: DTypeLike = np.float64,
        init: Init | None = None,
        lengths: Lengths | None = None,
        like: CsrMatrix | None = None,
        constant: bool = False,
    ) -> BlockArray:
        """Register an array that is divided along ``axis`` into one block for each process.

        Args:
            name: unique in the job.
            shape: global, in cells.
            axis: the distributed axis.
            halo: number of additional cells on both sides of the axis.
            dtype: the type of a cell.
            init: gets the owned global ranges as a tuple of slices, returns that part; not called
                on joining processes. Without it: zeros.
            lengths: gets the number of processes, returns the length of each block; without it the
                lengths differ by at most one.
            like: a matrix; the array always has the same blocks as its rows.
            constant: the array does not change from the first loop on.

        Returns:
            The handle of the array.

        Raises:
            DistributionError: what ``init`` returned does not fit; ``lengths`` does not return one
                length for each process, with the axis as their sum; the axis is not as long as
                ``like`` has rows; or the halo is wider than the smallest block.
        """
        full = as_shape(shape)
        axis, halo = as_counts(f"array {name!r}", axis=axis, halo=halo)
        extent = full[axis] if -len(full) <= axis < len(full) else 0
        split: Split | None = like
        if lengths is not None:
            split = LengthSplit(name, extent, lengths)
        if like is not None and (lengths is not None or extent != like.shape[0]):
            raise DistributionError(
                f"array {name!r}: with like={like.name!r} axis {axis} of shape {full} must be "
                f"{like.shape[0]} long, and lengths= cannot be given"
            )
        array = BlockArray(self._member, name, full, axis=axis, halo=halo, dtype=dtype, split=split)
        if constant and halo:
            raise ValueError(f"array {name!r}: a halo is exchanged anew: with constant= none")
        if constant and like is not None and not self._is_constant(like):
            raise ValueError(
                f"array {name!r}: with like={like.name!r} it is constant if the matrix is"
            )
        self._register(array, lambda: array.start_with(init), constant=constant)
        if like is not None:
            like.followers.append(array)
        return array

    def replicated(
        self,
        name: str,
        shape: int | tuple[int, ...],
        *,
        dtype: DTypeLike = np.float64,
        init: Callable[[], Any] | None = None,
        constant: bool = False,
    ) -> ReplicatedArray:
        """Register an array that is copied on every process; joining processes receive a copy.

        Args:
            name: unique in the job.
            shape: the shape of the array, in cells.
            dtype: the type of a cell.
            init: returns the whole array, equal on all processes. Without it: zeros.
            constant: the array does not change from the first loop on.

        Returns:
            The handle of the array.

        Raises:
            DistributionError: what ``init`` returned does not fit.
        """
        array = ReplicatedArray(self._member, name, as_shape(shape), dtype)
        return self._register(array, lambda: array.start_with(init), constant=constant)

    def items(
        self,
        name: str,
        dtype: DTypeLike,
        shape: int | tuple[int, ...] = (),
        *,
        init: ItemInit | None = None,
        weight: Weight | None = None,
        owner: Owner | None = None,
        constant: bool = False,
    ) -> Items:
        """Register particles, tasks or other items; every process has any number of them.

        Unless ``owner`` is given, a resize distributes them evenly and keeps their order: the items
        of rank 0, then those of rank 1, and so on.

        Args:
            name: unique in the job.
            dtype: the type of an item's cells; may be structured.
            shape: the shape of one item; ``local`` has the shape ``(n, *shape)``.
            init: gets rank and number of processes, returns this process's first items.
                Without it: none.
            weight: gets items, returns the weight of each, >= 0; every process then gets items of
                about the same total weight.
            owner: gets items and a number of processes, returns the owner rank of each.
            constant: the array does not change from the first loop on.

        Returns:
            The handle of the items.

        Raises:
            DistributionError: ``init`` returned items of another shape.
            ValueError: ``weight`` and ``owner`` are both given.
        """
        if weight is not None and owner is not None:
            raise ValueError(f"items {name!r}: either weight= or owner=, not both")
        if constant and (weight is not None or owner is not None):
            raise ValueError(
                f"items {name!r}: constant= goes with even shares, not weight=, owner="
            )
        what = f"items {name!r}"
        distribution: ItemDistribution = Even(what)
        if weight is not None:
            distribution = Weighted(what, weight)
        if owner is not None:
            distribution = ByOwner(what, owner)
        items = Items(self._member, name, dtype, as_shape(shape), distribution)
        return self._register(items, lambda: items.start_with(init), constant=constant)

    def csr(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        dtype: DTypeLike = np.float64,
        balance: str = "rows",
        init: CsrInit | None = None,
        constant: bool = False,
    ) -> CsrMatrix:
        """Register a sparse matrix whose rows are divided into one block for each process.

        Args:
            name: unique in the job.
            shape: rows and columns of the whole.
            dtype: the type of a nonzero.
            balance: "rows" gives all processes about equal numbers of rows, "nnz" of nonzeros.
            init: gets the range of rows [start, stop), returns indptr (from 0), indices (global
                columns) and data, or an object that has these attributes. Without it: no nonzeros.
            constant: the array does not change from the first loop on.

        Returns:
            The handle of the matrix.

        Raises:
            DistributionError: ``init`` returned something that does not describe these rows.
        """
        full = as_shape(shape)
        if len(full) != 2:
            raise ValueError(f"matrix {name!r}: {shape} is not (rows, columns)")
        matrix = CsrMatrix(self._member, name, (full[0], full[1]), dtype, balance)
        return self._register(matrix, lambda: matrix.start_with(init), constant=constant)

    def cyclic(
        self,
        name: str,
        shape: int | tuple[int, ...],
        *,
        axis: int = 0,
        block: int = 1,
        dtype: DTypeLike = np.float64,
        init: CyclicInit | None = None,
        constant: bool = False,
    ) -> CyclicArray:
        """Register an array whose cells along ``axis`` are assigned to the processes in turn.

        Args:
            name: unique in the job.
            shape: global, in cells.
            axis: the distributed axis.
            block: number of cells that are assigned together.
            dtype: the type of a cell.
            init: gets an index into the global array: for ``axis`` the numbers of the owned cells,
                for other axes slices. Returns that part. Without it: zeros.
            constant: the array does not change from the first loop on.

        Returns:
            The handle of the array.

        Raises:
            DistributionError: what ``init`` returned does not fit.
        """
        axis, block = as_counts(f"array {name!r}", axis=axis, block=block)
        array = CyclicArray(
            self._member,
            name,
            as_shape(shape),
            dtype,
            axes=(axis,),
            blocks=(block,),
            grid=lambda size: (size,),
        )
        return self._register(array, lambda: array.start_with(init), constant=constant)

    def block_cyclic(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        blocks: tuple[int, int] = (64, 64),
        grid: Grid = square_grid,
        dtype: DTypeLike = np.float64,
        init: CyclicInit | None = None,
        constant: bool = False,
    ) -> CyclicArray:
        """Register a matrix in ScaLAPACK's layout: blocks on a grid of processes.

        Args:
            name: unique in the job.
            shape: rows and columns of the whole.
            blocks: rows and columns of a block.
            grid: gets the number of processes, returns rows and columns of processes; without it
                as close to a square as possible. Rank ``r`` is at ``divmod(r, columns)``.
            dtype: the type of a cell.
            init: gets an index into the global matrix, the numbers of the owned rows ``(m, 1)``
                and columns ``(1, n)``; returns that part. Without it: zeros.
            constant: the array does not change from the first loop on.

        Returns:
            The handle of the matrix.

        Raises:
            DistributionError: ``grid`` does not make a grid of all processes, or what ``init``
                returned does not fit.
        """
        full, cut = as_shape(shape), as_shape(blocks, f"array {name!r}: blocks")
        if len(full) != 2 or len(cut) != 2:
            raise ValueError(f"array {name!r}: shape {shape} and blocks {blocks}: two of each")
        array = CyclicArray(self._member, name, full, dtype, axes=(0, 1), blocks=cut, grid=grid)
        return self._register(array, lambda: array.start_with(init), constant=constant)

    def partition(
        self,
        name: str,
        shape: int | tuple[int, ...],
        *,
        owner: Any,
        dtype: DTypeLike = np.float64,
        init: PartitionInit | None = None,
        constant: bool = False,
    ) -> PartitionedArray:
        """Register an array whose cells are assigned to processes by an owner map.

        Args:
            name: unique in the job.
            shape: global; the first axis is that of cells.
            owner: gets the number of processes, returns the owner rank of each cell, the same on
                all processes. Or an array with the number of each cell's part, as a partitioner
                returns it; each process then owns about equally many consecutive parts.
            dtype: the type of a cell.
            init: gets the global numbers of the owned cells, returns their values. Without it:
                zeros.
            constant: the array does not change from the first loop on.

        Returns:
            The handle of the array.

        Raises:
            DistributionError: ``owner`` does not name a rank, or a part from 0 on, for each cell,
                or what ``init`` returned does not fit.
        """
        owners = owner if callable(owner) else spread_parts(name, owner)
        array = PartitionedArray(self._member, name, as_shape(shape), dtype, owners)
        return self._register(array, lambda: array.start_with(init), constant=constant)
