"""What the coordinator and the server tell each other about checkpoints, as plain values."""

from dataclasses import dataclass

from pliant.core.model.checkpoint import SaveWord


@dataclass(frozen=True, slots=True)
class SaveOrder:
    """Save at this safe point."""

    #: The suspension that wants it; 0: the program itself does.
    number: int = 0

    @property
    def leaves(self) -> bool:
        """Whether the processes end when it is done."""
        return self.number > 0


@dataclass(frozen=True, slots=True)
class SaveReport:
    """What has come of it."""

    number: int
    word: SaveWord
    reason: str = ""
    #: Of a checkpoint that was taken: where it continues, and what it holds.
    iteration: int = 0
    bytes: int = 0
    seconds: float = 0.0
