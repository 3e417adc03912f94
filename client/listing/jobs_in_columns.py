"""Jobs in blocks, as the server sends long lists: column by column, equal values once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any


class JobBlock:
    """A part of a list of jobs, stored by columns: for each field, the values of all its jobs."""

    def __init__(self, count: int, values: dict[str, Sequence[Any]]) -> None:
        """Create a block.

        Args:
            count: the number of its jobs.
            values: by field, the values in the order of the jobs. One value alone stands for all
                jobs of the block.
        """
        self.count, self.values = count, values

    def column(self, field: str) -> Sequence[Any]:
        """Return the value of a field for each job of the block."""
        return repeated(self.values[field], self.count)

    def rows(self, *fields: str) -> Iterator[tuple[Any, ...]]:
        """Yield the values of these fields for each job of the block.

        If each of the fields has a single value for all jobs of the block, only one row is yielded.
        """
        columns = [self.values[field] for field in fields]
        count = max(map(len, columns))
        return zip(*(repeated(column, count) for column in columns), strict=True)


def repeated(values: Sequence[Any], count: int) -> Sequence[Any]:
    """Return ``values``; if there is only one, return it repeated ``count`` times."""
    return values if len(values) == count else [values[0]] * count


def blocks_of(answer: Mapping[str, Any], fields: Sequence[str]) -> list[JobBlock]:
    """Return the jobs of an answer as blocks, also of an older server, which sends job by job.

    Args:
        answer: the answer to a request ``jobs``.
        fields: the values that were asked for.
    """
    if "blocks" in answer:
        names = answer["fields"]
        return [
            JobBlock(block["count"], dict(zip(names, block["columns"], strict=True)))
            for block in answer["blocks"]
        ]
    if "rows" in answer:
        names, rows = answer["fields"], answer["rows"]
    else:
        names, rows = fields, [[job.get(name) for name in fields] for job in answer["jobs"]]
    if not rows:
        return []
    return [JobBlock(len(rows), dict(zip(names, zip(*rows, strict=True), strict=True)))]
