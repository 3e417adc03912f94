"""Sets of processors as integers: bit ``i`` is the processor with global index ``i``.

Use the integer operators: ``a & b``, ``a | b``, ``a & ~b``. This module has the other operations.
"""

from collections.abc import Iterable, Iterator

#: A set of processors; never negative.
ProcessorMap = int

NONE: ProcessorMap = 0

#: Sets are processed in pieces of this many bits, because small integers are faster.
_NARROW = 512
_PART = (1 << _NARROW) - 1
#: Fewer indices than this are set one by one.
_FEW = 8


def from_indices(indices: Iterable[int]) -> ProcessorMap:
    """Return the set of the processors with these indices."""
    wanted = tuple(indices)  # costs nothing if it is a tuple already
    if len(wanted) >= _FEW:
        row = range(wanted[0], wanted[0] + len(wanted))
        if wanted[-1] == row[-1] and wanted == tuple(row):  # the usual case: consecutive indices
            return block(wanted[0], len(wanted))
        if (last := max(wanted)) >= _NARROW:
            return _wide(wanted, last)
    result = 0
    for index in wanted:
        result |= 1 << index
    return result


def _wide(wanted: tuple[int, ...], last: int) -> ProcessorMap:
    # Bit by bit in one buffer: setting a bit of a wide integer copies all of it.
    cells = bytearray((last >> 3) + 1)
    for index in wanted:
        cells[index >> 3] |= 1 << (index & 7)
    return int.from_bytes(cells, "little")


def block(first: int, count: int) -> ProcessorMap:
    """Return ``count`` consecutive processors, starting with ``first``."""
    return ((1 << count) - 1) << first


def count(processors: ProcessorMap) -> int:
    """Return how many processors a set has."""
    return processors.bit_count()


def indices(processors: ProcessorMap) -> Iterator[int]:
    """Return the indices in ascending order."""
    found: list[int] = []
    base = 0
    while processors:
        skipped = (processors & -processors).bit_length() - 1
        base, processors = base + skipped, processors >> skipped
        part = processors & _PART
        # Run by run in a part that is narrow enough for cheap steps.
        place = base
        while part:
            zeros = (part & -part).bit_length() - 1
            part >>= zeros
            ones = (~part & (part + 1)).bit_length() - 1
            part >>= ones
            place += zeros + ones
            found += range(place - ones, place)
        base, processors = base + _NARROW, processors >> _NARROW
    return iter(found)


def lowest(processors: ProcessorMap, number: int) -> ProcessorMap:
    """Return the ``number`` lowest processors of a set.

    Raises:
        ValueError: the set has fewer.
    """
    available = processors.bit_count()
    if number > available:
        raise ValueError(f"{number} processors asked of a map that holds {available}")
    if number == available:
        return processors
    first = (processors & -processors).bit_length() - 1
    run = block(first, number)
    if processors & run == run:  # the usual case: they are consecutive
        return run
    # Halve by position: O(log width) big-integer steps instead of one per processor.
    result, width = 0, processors.bit_length()
    offset = 0
    while number:
        width = (width + 1) // 2
        low = processors & ((1 << width) - 1)
        held = low.bit_count()
        if held <= number:
            result |= low << offset
            number -= held
            processors >>= width
            offset += width
            width = processors.bit_length()
        else:
            processors = low
    return result


def format_ranges(processors: ProcessorMap) -> str:
    """Return a set as text, such as ``0-3,8``."""
    parts: list[str] = []
    start = previous = -2
    for index in indices(processors):
        if index != previous + 1:
            if previous >= 0:
                parts.append(f"{start}-{previous}" if previous > start else str(start))
            start = index
        previous = index
    if previous >= 0:
        parts.append(f"{start}-{previous}" if previous > start else str(start))
    return ",".join(parts)


def parse_ranges(text: str) -> frozenset[int]:
    """Return the indices in a text that `format_ranges` wrote."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


# Names of before 2026-11, for strategies of other distributions. To be removed after a release.
of = from_indices
text = format_ranges
