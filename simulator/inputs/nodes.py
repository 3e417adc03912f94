"""The nodes of a simulated machine, if they differ: ``4x16:mem=64G,gpu=2,prop=fast+8x8``."""

import re
from dataclasses import dataclass

from pliant.core.values.node_needs import is_gres_name, parse_gres, parse_memory
from pliant.core.values.node_property_constraint import is_property
from pliant.simulator.inputs.simulation_errors import SettingsError

#: How nodes are written, for messages.
FORM = "write COUNTxSLOTS[:KEY=VALUE,...]+..., such as 4x16:mem=64G,gpu=2,prop=fast+8x8"

_GROUP = re.compile(r"(\d{1,6})x(\d{1,6})(?::(.+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A number of equal nodes: slots, memory, generic resources and properties of each."""

    count: int
    slots: int
    #: Memory of each node in bytes. 0 if jobs cannot ask for memory there.
    memory: int = 0
    #: Generic resources of each node, in order of name.
    gres: tuple[tuple[str, int], ...] = ()
    properties: tuple[str, ...] = ()


def parse_nodes(text: str) -> tuple[NodeGroup, ...]:
    """Read groups of equal nodes from a text such as ``4x16:mem=64G,gpu=2+8x8``.

    These are 4 nodes of 16 processors, with memory and devices, and 8 nodes of 8 processors.

    Raises:
        SettingsError: the text is not valid. The message says how to write it.
    """
    return tuple(_group(part.strip(), text) for part in text.split("+"))


def _group(part: str, text: str) -> NodeGroup:
    match = _GROUP.fullmatch(part)
    if match is None or not (int(match[1]) and int(match[2])):
        raise SettingsError(f"nodes {text!r}: {FORM}")
    memory = 0
    gres: dict[str, int] = {}
    properties: list[str] = []
    for pair in match[3].split(",") if match[3] else ():
        key, equals, value = pair.partition("=")
        try:
            if key == "mem" and equals:
                memory = parse_memory(value)
            elif key == "prop" and is_property(value):
                properties.append(value)
            elif equals and is_gres_name(key):
                gres |= parse_gres([f"{key}:{value}"])
            else:
                raise SettingsError(f"nodes {text!r}: {pair!r}: {FORM}")
        except ValueError as error:
            raise SettingsError(f"nodes {text!r}: {error}") from None
    return NodeGroup(
        int(match[1]), int(match[2]), memory, tuple(sorted(gres.items())), tuple(properties)
    )
