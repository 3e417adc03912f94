"""The specification of a user's own cluster, and the file in which it is kept."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Any

from pliant.client.client_errors import ClientError
from pliant.client.cluster.host_list import Host
from pliant.client.cluster.node_sites_option import site_of_each_node

#: The file in the state directory that holds the specification.
SPEC_FILE = "cluster.json"
#: The smallest number that makes sense for each count.
_MIN_COUNTS = {"nodes": 1, "slots": 1, "spares": 0, "most_processes": 0}


#: Time before the end of an allocation at which jobs are saved, in seconds.
SAVE_BEFORE_S = 120.0


@dataclass(frozen=True)
class RemoteSpec:
    """The hosts of a cluster's nodes, if they are not on this machine, and how they are reached."""

    hosts: tuple[Host, ...]
    #: Number of the job of Slurm in whose allocation the hosts are; empty for hosts over SSH.
    slurm_job: str = ""
    #: HOST or HOST:PORT at which the hosts reach this one; empty: found by the route to them.
    address: str = ""
    #: Network interface of MPI messages; empty: the one on the way to the server.
    interface: str = ""
    #: Folder on each host for the state of its node; empty for the one of temporary files.
    node_dir: str = ""
    #: File of the private key; empty for the agent and the usual files.
    key_file: str = ""
    #: File of known hosts; empty for those of the user and of this machine.
    known_hosts: str = ""
    #: In an allocation: seconds before its end at which jobs are saved.
    save_before_s: float = SAVE_BEFORE_S


@dataclass(frozen=True)
class ClusterSpec:
    """The number of nodes and slots of a cluster, and the settings of its daemons."""

    nodes: int = 4
    #: Of each node on this machine; other hosts have their own numbers.
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
    #: The sites of the nodes on this machine, as ``NAME:NODES,...``; empty if there is one cluster.
    sites: str = ""
    #: Processes that a job may have on one node; 0 if the controllers choose.
    most_processes: int = 0
    #: Other hosts on which the nodes are; None if they are on this machine.
    remote: RemoteSpec | None = None

    @property
    def node_names(self) -> list[str]:
        """Return the names of all nodes, spare ones (replacements for lost nodes) included."""
        if self.remote is not None:
            return [host.name for host in self.remote.hosts]
        return [*(f"n{number}" for number in range(1, self.nodes + 1)), *self.spare_node_names]

    @property
    def spare_node_names(self) -> list[str]:
        """Return the names of the spare nodes, each of which replaces a node that is lost."""
        return [f"s{number}" for number in range(1, self.spares + 1)]

    def site_of(self, node: str) -> str:
        """Return the site (group of nodes) to which a node belongs.

        The result is empty for a spare node, and if the cluster is not divided into sites.
        """
        return dict(zip(self.node_names, site_of_each_node(self.sites), strict=False)).get(node, "")


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
    fields = {key: data[key] for key in asdict(ClusterSpec()) if key in data}
    fields["remote"] = _parse_remote(data.get("remote"))
    spec = ClusterSpec(**fields)
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
    texts = [data.get(name, "") for name in ("strategy", "transport", "config", "sites")]
    options = data.get("strategy_options", [])
    return (
        all(type(number) is int and number >= least for number, least in counts)
        and isinstance(options, list)
        and all(isinstance(text, str) for text in [*texts, *options])
        and _is_valid_remote(data.get("remote"))
    )


def _is_valid_remote(data: object) -> bool:
    try:
        _parse_remote(data)
    except (TypeError, AttributeError):
        return False
    return True


def _parse_remote(data: Any) -> RemoteSpec | None:
    """Return the part of a specification that is about other hosts; None if there is none.

    Raises:
        TypeError: the specification is damaged.
    """
    if data is None:
        return None
    hosts = tuple(Host(**each) for each in data["hosts"])
    spec = RemoteSpec(**{**data, "hosts": hosts})
    texts = [spec.slurm_job, spec.address, spec.interface, spec.node_dir]
    texts += [spec.key_file, spec.known_hosts]
    texts += [text for host in hosts for text in (host.name, host.target, host.python)]
    numbers = [spec.save_before_s, *(host.slots for host in hosts)]
    if not all(isinstance(text, str) for text in texts) or not all(
        isinstance(number, int | float) for number in numbers
    ):
        raise TypeError("a field has another type")
    return spec
