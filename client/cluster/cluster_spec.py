"""The specification of a cluster on this machine, and the file in which it is kept."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace

from pliant.client.client_errors import ClientError

#: The file in the state directory that holds the specification.
SPEC_FILE = "cluster.json"
#: The smallest number that makes sense for each count.
_MIN_COUNTS = {"nodes": 1, "slots": 1, "spares": 0, "most_processes": 0}


@dataclass(frozen=True)
class ClusterSpec:
    """The number of nodes and slots of a cluster, and the settings of its daemons."""

    nodes: int = 4
    slots: int = 4
    #: Empty if the server chooses.
    strategy: str = ""
    #: Options of the strategy, each as ``name=value``.
    strategy_options: tuple[str, ...] = ()
    #: What MPI messages travel over; empty if the controllers choose.
    transport: str = ""
    #: File with the server's configuration; empty if there is none.
    config: str = ""
    #: Spare nodes, each of which replaces a node that is lost.
    spares: int = 0
    #: Processes that a job may have on one node; 0 if the controllers choose.
    most_processes: int = 0

    @property
    def node_names(self) -> list[str]:
        """Return the names of all nodes, spare ones included."""
        return [*(f"n{number}" for number in range(1, self.nodes + 1)), *self.spare_node_names]

    @property
    def spare_node_names(self) -> list[str]:
        """Return the names of the spare nodes."""
        return [f"s{number}" for number in range(1, self.spares + 1)]


def load_spec(state: str) -> ClusterSpec | None:
    """Read the specification in a state directory; None if there is none.

    Raises:
        ClientError: the file is damaged.
    """
    path = os.path.join(state, SPEC_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError:
        return None
    except ValueError:
        data = None
    if not _is_valid_spec(data):
        raise ClientError(
            f"{path} is damaged: remove it, and say --nodes and --slots once more to `pliant up`"
        )
    spec = ClusterSpec(**{key: data[key] for key in asdict(ClusterSpec()) if key in data})
    return replace(spec, strategy_options=tuple(spec.strategy_options))


def save_spec(state: str, spec: ClusterSpec) -> None:
    """Save a specification for the next `pliant up`."""
    path = os.path.join(state, SPEC_FILE)
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(asdict(spec), file)
    os.replace(draft, path)


def _is_valid_spec(data: object) -> bool:
    """Return whether the content of a file is a valid specification of a cluster."""
    if not isinstance(data, dict):
        return False
    counts = [(data.get(name, least), least) for name, least in _MIN_COUNTS.items()]
    texts = [data.get(name, "") for name in ("strategy", "transport", "config")]
    options = data.get("strategy_options", [])
    return (
        all(type(number) is int and number >= least for number, least in counts)
        and isinstance(options, list)
        and all(isinstance(text, str) for text in [*texts, *options])
    )
