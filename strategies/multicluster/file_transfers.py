"""Transfer times of input files to a cluster, for the policy close to files (KOALA 4.1)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field


class FilesError(ValueError):
    """A file or a cluster is not known. The message names it."""


@dataclass(frozen=True, slots=True)
class FileCatalogue:
    """The input files: their sizes, the clusters that have them, and the links between clusters.

    Raises:
        FilesError: a replica or a link names a cluster that does not exist, or a file has no size.
    """

    clusters: Collection[str]
    #: The size of each file, in a unit of the caller's choice.
    sizes: Mapping[str, float] = field(default_factory=dict)
    #: The clusters that have the file.
    replicas: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: How much of the unit passes in a second, from the first cluster to the second one.
    bandwidth: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for file, places in self.replicas.items():
            if file not in self.sizes:
                raise FilesError(f"file {file} has replicas but no size: state its size")
            self._check(places, f"file {file}")
        for link, speed in self.bandwidth.items():
            self._check(link, "bandwidth")
            if not speed > 0:
                raise FilesError(f"bandwidth from {link[0]} to {link[1]}: {speed:g} is not above 0")

    def _check(self, names: Sequence[str], what: str) -> None:
        for name in names:
            if name not in self.clusters:
                known = ", ".join(sorted(self.clusters))
                raise FilesError(f"{what}: there is no cluster {name!r}; there are: {known}")

    def seconds(self, files: Sequence[str], cluster: str) -> float:
        """Return the seconds until a cluster has all files.

        Each missing file comes from the replica with the fastest link. The time is infinite if no
        cluster that has a file is linked with this one.

        Raises:
            FilesError: a file is not in the catalogue.
        """
        return sum(self._transfer(file, cluster) for file in files)

    def _transfer(self, file: str, cluster: str) -> float:
        if file not in self.sizes:
            known = ", ".join(sorted(self.sizes)) or "none"
            raise FilesError(f"there is no input file {file!r}; there are: {known}")
        places = self.replicas.get(file, ())
        if cluster in places:
            return 0.0
        speeds = [
            self.bandwidth[place, cluster] for place in places if (place, cluster) in self.bandwidth
        ]
        return self.sizes[file] / max(speeds) if speeds else float("inf")

    def transfers(self, files: Sequence[Sequence[str]]) -> list[dict[str, float]]:
        """Return, for each component of a job, the seconds until each cluster has its input files.

        ``files`` has the names of each component's input files.
        """
        return [{name: self.seconds(each, name) for name in self.clusters} for each in files]
