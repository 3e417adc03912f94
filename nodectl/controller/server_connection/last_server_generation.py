"""The last server whose orders a node carried out, kept in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pliant.protos.daemons.atomic_files import write_whole

#: Largest plausible increase of the generation, which counts the starts of the server. Restarts
#: every few seconds for days while this node was away stay below it.
MAX_STEP = 100_000


@dataclass(frozen=True, slots=True)
class ServerStart:
    """One start of the server.

    The generation is the number of starts that the server's database has counted. Two servers with
    copies of one database can reach the same generation. Then the random word ``life``, which each
    start makes, tells them apart. The generation is 0 as long as no server is known, and ``life``
    is empty if it is not known.
    """

    generation: int = 0
    life: str = ""

    def rejection(self, server: ServerStart) -> str:
        """Return why this node, which has obeyed ``self``, must reject orders of ``server``.

        Empty if it may obey ``server``.
        """
        if server.generation < self.generation:
            return f"generation {server.generation} is older than {self.generation}"
        same = server.generation == self.generation
        if same and self.life and server.life and server.life != self.life:
            return f"generation {server.generation} is of another server than the one obeyed here"
        if self.generation and server.generation > self.generation + MAX_STEP:
            return (
                f"generation {server.generation} is more than {MAX_STEP} starts after "
                f"{self.generation}, the last one obeyed here; if the server is right, remove the "
                "file `generation` in the state folder of this node"
            )
        return ""


def read_generation(path: Path) -> ServerStart:
    """Read from a file which start of the server this node has obeyed last.

    If there is no file, the generation of the returned start is 0.

    Raises:
        OSError: the file cannot be read, or is damaged.
    """
    try:
        number, *life = path.read_text(encoding="ascii").split()
        if not number.isdecimal() or len(life) > 1:
            raise ValueError(number)
        return ServerStart(int(number), *life)
    except FileNotFoundError:
        return ServerStart()
    except ValueError:
        raise OSError(
            f"{path} does not hold the generation of a server: remove it; then any server of the "
            "cluster is obeyed"
        ) from None


def write_generation(path: Path, obeyed: ServerStart) -> None:
    """Store durably which server was obeyed last; a crash leaves the old content or the new one."""
    write_whole(path, f"{obeyed.generation} {obeyed.life}".rstrip() + "\n")
