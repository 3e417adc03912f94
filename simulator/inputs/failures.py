"""When nodes fail and when they are repaired: at random times or as listed."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from random import Random

from pliant.simulator.inputs.open_regular_file import open_regular
from pliant.simulator.inputs.simulation_errors import SettingsError

_COLUMNS = ("node", "down", "up")


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures of nodes: at exponentially distributed times for each node, or at listed times.

    All times are in seconds.
    """

    #: The mean time from a repair to the next failure of a node; 0 for no random failures.
    between: float = 0.0
    #: The mean time to repair.
    repair: float = 0.0
    #: For each node (down, up), ascending; ``up`` is ``math.inf`` if it is never repaired.
    listed: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether any node can fail."""
        return self.between > 0 or bool(self.listed)

    def of_node(self, name: str, begin: float, seed: int) -> Iterator[tuple[float, float]]:
        """Yield (down, up) for each outage of a node, in seconds; endlessly if outages are random.

        Args:
            name: the name of the node.
            begin: the time after which random outages occur.
            seed: the seed of the random times.
        """
        yield from self.listed.get(name, ())
        rng = Random(f"{seed}:failures:{name}")
        while self.between > 0:
            down = begin + rng.expovariate(1.0 / self.between)
            begin = down + (rng.expovariate(1.0 / self.repair) if self.repair > 0 else 0.0)
            yield down, begin


NO_FAILURES = Failures()


def parse_failures(text: str) -> Failures:
    """Read ``MTBF/MTTR``, or the name of a CSV file with the columns node, down, up.

    Raises:
        SettingsError: the text or the file is not valid. The message says how to write it.
    """
    between, slash, repair = text.partition("/")
    try:
        if slash:
            return _random(float(between), float(repair))
    except ValueError:
        pass
    path = Path(text)
    if not path.is_file():
        raise SettingsError(
            f"node-failures {text!r}: write MTBF/MTTR in seconds, such as 86400/3600, or name a "
            "CSV file with the columns node,down,up"
        )
    return Failures(listed=_listed(path))


def _random(between: float, repair: float) -> Failures:
    if not (0 < between < math.inf and 0 <= repair < math.inf):
        raise SettingsError("node-failures MTBF/MTTR: MTBF is > 0 and MTTR >= 0 seconds")
    return Failures(between, repair)


def _listed(path: Path) -> dict[str, list[tuple[float, float]]]:
    result: dict[str, list[tuple[float, float]]] = {}
    try:
        with TextIOWrapper(open_regular(path), encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if tuple(rows.fieldnames or ()) != _COLUMNS:
                raise SettingsError(f"{path}:1: expected the columns node,down,up")
            for row in rows:
                result.setdefault(row["node"], []).append(_outage(path, rows.line_num, row))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from None
    for name, outages in result.items():
        outages.sort()
        if any(up > down for (_, up), (down, _) in pairwise(outages)):
            raise SettingsError(f"{path}: two outages of node {name} overlap")
    return result


def _outage(path: Path, line: int, row: Mapping[str, str | None]) -> tuple[float, float]:
    try:
        down, up = float(row["down"] or ""), float(row["up"] or "inf")
    except ValueError:
        down, up = math.nan, math.nan
    if not (math.isfinite(down) and down <= up):
        raise SettingsError(f"{path}:{line}: expected seconds with down <= up (up empty: never)")
    return down, up
