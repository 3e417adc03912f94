"""What a cluster on this machine is made of, and the file of its state directory that keeps it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace

from pliant.client.errors import ClientError

#: File in the state directory.
MEMORY = "cluster.json"
#: From what number on each makes sense.
_COUNTS = {"nodes": 1, "slots": 1, "spares": 0, "most_processes": 0}


@dataclass(frozen=True)
class Shape:
    """What a cluster is made of."""

    nodes: int = 4
    slots: int = 4
    #: Empty: the server's own choice.
    strategy: str = ""
    #: Of the strategy, ``name=value`` each.
    strategy_options: tuple[str, ...] = ()
    #: Empty: the controllers' own choice.
    transport: str = ""
    #: File with the server's configuration; empty: none.
    config: str = ""
    #: Nodes that wait to take the place of a lost one.
    spares: int = 0
    #: Of a job on a node; 0: the controllers' own choice.
    most_processes: int = 0

    @property
    def names(self) -> list[str]:
        """How its nodes are called."""
        return [*(f"n{number}" for number in range(1, self.nodes + 1)), *self.spare_names]

    @property
    def spare_names(self) -> list[str]:
        """How those are called that wait."""
        return [f"s{number}" for number in range(1, self.spares + 1)]


def remembered(state: str) -> Shape | None:
    """Return the shape that a state directory keeps; None: it had no cluster before.

    Raises:
        ClientError: the file is damaged.
    """
    path = os.path.join(state, MEMORY)
    try:
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
    except OSError:
        return None
    except ValueError:
        known = None
    if not _is_shape(known):
        raise ClientError(
            f"{path} is damaged: remove it, and say --nodes and --slots once more to `pliant up`"
        )
    shape = Shape(**{key: known[key] for key in asdict(Shape()) if key in known})
    return replace(shape, strategy_options=tuple(shape.strategy_options))


def remember(state: str, shape: Shape) -> None:
    """Keep a shape for the next `pliant up`."""
    path = os.path.join(state, MEMORY)
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(asdict(shape), file)
    os.replace(draft, path)


def _is_shape(known: object) -> bool:
    """Whether what a file holds is what a shape was kept as."""
    if not isinstance(known, dict):
        return False
    counts = [(known.get(name, least), least) for name, least in _COUNTS.items()]
    texts = [known.get(name, "") for name in ("strategy", "transport", "config")]
    options = known.get("strategy_options", [])
    return (
        all(type(number) is int and number >= least for number, least in counts)
        and isinstance(options, list)
        and all(isinstance(text, str) for text in [*texts, *options])
    )
