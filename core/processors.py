"""Processor maps: sets of global processor indices as integers (bit ``i`` is processor ``i``).

Algebra is the integer's own: ``a & b``, ``a | b``, ``a & ~b``. Here is what integers lack.
"""

from collections.abc import Iterable, Iterator

#: A set of processors; never negative.
ProcessorMap = int

NONE: ProcessorMap = 0


def of(indices: Iterable[int]) -> ProcessorMap:
    """The map that holds exactly ``indices``."""
    result = 0
    for index in indices:
        result |= 1 << index
    return result


def block(first: int, count: int) -> ProcessorMap:
    """``count`` processors from ``first`` on."""
    return ((1 << count) - 1) << first


def count(processors: ProcessorMap) -> int:
    """How many processors the map holds."""
    return processors.bit_count()


def indices(processors: ProcessorMap) -> Iterator[int]:
    """The indices in ascending order."""
    while processors:
        lowest_bit = processors & -processors
        yield lowest_bit.bit_length() - 1
        processors ^= lowest_bit


def lowest(processors: ProcessorMap, number: int) -> ProcessorMap:
    """The ``number`` lowest processors of the map.

    Raises:
        ValueError: the map holds fewer.
    """
    available = processors.bit_count()
    if number > available:
        raise ValueError(f"{number} processors asked of a map that holds {available}")
    if number == available:
        return processors
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


def text(processors: ProcessorMap) -> str:
    """For people: ``0-3,8``."""
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
