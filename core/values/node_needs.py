"""Needs of a job's processes on each node: memory, devices, properties, certain nodes.

An *amount* is a quantity of which a node has a limited number, divided among processes: bytes of
memory, or generic resources such as GPUs. A job states the amount for each of its processes, so the
total changes with the size of a malleable job.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from sys import maxsize
from typing import Any

from pliant.core.values.node_property_constraint import Constraint
from pliant.core.values.node_ranges import parse_node_ranges

#: The amount that counts bytes of memory. All others are generic resources.
MEMORY = "memory"
#: The generic resource of ``--gpus``.
GPU = "gpu"
#: The largest amount of a generic resource of one node, and the most bytes of memory.
MAX_GRES, MAX_MEMORY = 1_000_000, 1 << 60

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}", re.ASCII)
_MEMORY = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)([KMGTP]?)(?:i?B)?", re.ASCII | re.IGNORECASE)
_UNITS = {unit: 1 << (10 * power) for power, unit in enumerate(["", *"KMGTP"])}

#: How much of each amount there is, by name.
Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodeNeeds:
    """Memory, devices and properties that a job needs on its nodes.

    Raises:
        ValueError: an amount is below 1, or a list of nodes is not of the form ``n[01-16],m1``.
    """

    #: For each process, in order of name. Memory in bytes.
    amounts: tuple[tuple[str, int], ...] = ()
    #: The properties that its nodes must have. None for any.
    constraint: Constraint | None = None
    #: A list of nodes, as ``n[01-16]``: the job runs on no others. Empty for all.
    nodelist: str = ""
    #: A list of nodes on which it does not run.
    exclude: str = ""
    #: Whether its nodes must share the folder of checkpoints. The server sets this, not the user.
    checkpoint_folder: bool = False
    _only: frozenset[str] = field(init=False, repr=False, compare=False)
    _without: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if any(amount < 1 for _, amount in self.amounts):
            raise ValueError("an amount that a job needs is at least 1")
        only = parse_node_ranges(self.nodelist) if self.nodelist else ()
        without = parse_node_ranges(self.exclude) if self.exclude else ()
        object.__setattr__(self, "_only", frozenset(only))
        object.__setattr__(self, "_without", frozenset(without))

    def __bool__(self) -> bool:
        return bool(self.amounts or self.constraint or self.nodelist or self.exclude) or (
            self.checkpoint_folder
        )

    def accepts(
        self, node: str, properties: frozenset[str], *, shares_checkpoints: bool = True
    ) -> bool:
        """Return whether a job may use a node, by name, properties and folder of checkpoints.

        How much memory and how many devices are free is not checked.

        Args:
            node: its name.
            properties: the properties of the node.
            shares_checkpoints: whether the node has the folder of checkpoints, which a run that
                continues from a checkpoint needs.
        """
        if self.checkpoint_folder and not shares_checkpoints:
            return False
        if self._only and node not in self._only:
            return False
        if node in self._without:
            return False
        return self.constraint is None or self.constraint.fits(properties)

    def processes(self, left: Amounts) -> int:
        """Return for how many processes of the job these unused amounts suffice."""
        most = maxsize
        for name, amount in self.amounts:
            there = left.get(name, 0) // amount
            most = min(there, most)
        return max(0, most)

    @property
    def memory(self) -> int:
        """Return the bytes of memory for each process; 0 if none were asked for."""
        return dict(self.amounts).get(MEMORY, 0)

    @property
    def gres(self) -> dict[str, int]:
        """Return the generic resources for each process, by name."""
        return {name: amount for name, amount in self.amounts if name != MEMORY}

    def __str__(self) -> str:
        parts = [f"{amount_text(name, amount)} per process" for name, amount in self.amounts]
        parts += [f"constraint {self.constraint}"] if self.constraint else []
        parts += [f"nodes {self.nodelist}"] if self.nodelist else []
        parts += [f"not {self.exclude}"] if self.exclude else []
        parts += ["the folder of its checkpoint"] if self.checkpoint_folder else []
        return ", ".join(parts)

    def to_record(self) -> dict[str, Any]:
        """Return the needs as data for JSON."""
        record: dict[str, Any] = {"amounts": dict(self.amounts)} if self.amounts else {}
        if self.constraint:
            record["constraint"] = self.constraint.text
        lists = {"nodelist": self.nodelist, "exclude": self.exclude}
        return record | {name: text for name, text in lists.items() if text}


def needs_from_record(record: Mapping[str, Any] | None) -> NodeNeeds | None:
    """Return the needs that a record describes; None if there are none."""
    if not record:
        return None
    constraint = record.get("constraint", "")
    return NodeNeeds(
        tuple(sorted(record.get("amounts", {}).items())),
        Constraint(constraint) if constraint else None,
        record.get("nodelist", ""),
        record.get("exclude", ""),
    )


def amount_text(name: str, amount: int) -> str:
    """Return an amount as users see it: ``4G memory``, ``2 gpu``."""
    return f"{memory_text(amount)} memory" if name == MEMORY else f"{amount} {name}"


def memory_text(size: int) -> str:
    """Return a number of bytes in the largest unit that divides it, such as ``64G``."""
    unit = ""
    for unit_ in "KMGTP":
        if size < 1024 or size % 1024:
            break
        size, unit = size // 1024, unit_
    return f"{size}{unit}" if unit else f"{size} bytes"


def parse_memory(text: str, unit: str = "M") -> int:
    """Return the bytes of a text such as ``4G``, ``1.5T`` or ``500`` (in ``unit``).

    Raises:
        ValueError: the text is not an amount of memory.
    """
    match = _MEMORY.fullmatch(text.strip())
    size = int(float(match[1]) * _UNITS[match[2].upper() or unit]) if match else 0
    if not 0 < size <= MAX_MEMORY:
        raise ValueError(
            f"{text[:40]!r} is not an amount of memory; write a number with a unit, as in 500M or "
            "4G (without a unit: megabytes)"
        )
    return size


def is_gres_name(text: str) -> bool:
    """Return whether a text may be the name of a generic resource."""
    return _NAME.fullmatch(text) is not None and text != MEMORY


def parse_gres(texts: Iterable[str]) -> dict[str, int]:
    """Return generic resources by name, from texts such as ``gpu:2``, ``fpga`` or ``gpu=2``.

    Raises:
        ValueError: a text has another form, or a resource is named twice.
    """
    found: dict[str, int] = {}
    for text in texts:
        name, _, number = text.replace("=", ":").partition(":")
        amount = number or "1"
        if not is_gres_name(name) or not re.fullmatch(r"\d{1,7}", amount, re.ASCII):
            raise ValueError(
                f"{text[:40]!r} is not a generic resource; write NAME or NAME:NUMBER, as in gpu:2"
            )
        if not 1 <= int(amount) <= MAX_GRES:
            raise ValueError(f"{text[:40]!r}: expected 1 to {MAX_GRES}")
        if name in found:
            raise ValueError(f"{name} is named twice")
        found[name] = int(amount)
    return found


def largest_text(name: str, all_amounts: Collection[Amounts]) -> str:
    """Return the largest of several nodes' amounts of one resource: ``64G memory``, ``no gpu``."""
    most = max((amounts.get(name, 0) for amounts in all_amounts), default=0)
    return amount_text(name, most) if most else f"no {name}"
