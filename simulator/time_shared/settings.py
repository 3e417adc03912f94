"""The settings of a simulation with time-shared nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pliant.simulator.inputs.simulation_errors import SettingsError
from pliant.strategies import Strategy
from pliant.strategies.load_sharing.overload import FAULT_THRESHOLD

#: Bytes of a megabyte, and bits of a megabit per second, as the paper's tables use them.
MB = 2**20
MBIT = 10**6


@dataclass(frozen=True, slots=True)
class TimeSharedSettings:
    """All settings of a simulation with time-shared nodes, except its jobs.

    Times are in seconds, and memory is in MB of 2^20 bytes. Chen, Xiao and Zhang 2002 give the
    times, the bandwidth and the memory (section 3.3.1). They give no value for slots, user share,
    faults, ramp, quantum, period and window: these are assumed.

    Raises:
        SettingsError: a value is invalid. The message names the field.
    """

    nodes: int = 32
    #: The CPU threshold: jobs on a node, including those that are being moved to it.
    slots: int = 4
    memory_mb: float = 384.0
    #: Further nodes with another amount of memory, as ``NUMBERxMB``, for example ``8x768``.
    more_nodes: str = ""
    #: The part of the memory that jobs may use.
    user_share: float = 0.9
    #: The speed of all processors, relative to those that processor times were measured on.
    speed: float = 1.0
    #: Page faults per second of processor time of a job that demands twice the memory.
    faults: float = 1000.0
    fault_service_s: float = 0.01
    context_switch_s: float = 0.0001
    quantum_s: float = 0.1
    #: Whether other jobs compute while a job waits for its pages.
    overlap: bool = True
    #: The part of its processor time in which the demand of a job grows to its maximum.
    ramp: float = 0.5
    bandwidth_mbit: float = 10.0
    remote_start_s: float = 0.1
    #: The time between two reports of the nodes. Each report is followed by a pass.
    load_period_s: float = 1.0
    #: The time over which page faults are averaged.
    window_s: float = 5.0
    strategy: str | Strategy = "load-sharing"
    options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("nodes", "slots"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name}: expected at least 1, not {getattr(self, name)}")
        positive = ("memory_mb", "user_share", "speed", "fault_service_s", "quantum_s")
        for name in (*positive, "bandwidth_mbit", "load_period_s", "window_s"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"{name}: expected a number > 0, not {getattr(self, name)}")
        for name in ("faults", "context_switch_s", "remote_start_s"):
            if not getattr(self, name) >= 0:
                raise SettingsError(f"{name}: expected a number >= 0, not {getattr(self, name)}")
        if not self.user_share <= 1:
            raise SettingsError(f"user_share: expected at most 1, not {self.user_share}")
        if not 0 <= self.ramp <= 1:
            raise SettingsError(f"ramp: expected a number from 0 to 1, not {self.ramp}")
        self._check_fault_threshold()
        self.memories()

    def _check_fault_threshold(self) -> None:
        """Check that the disk of a node can serve more faults than the strategy's threshold."""
        most = 1 / self.fault_service_s
        given = {name.replace("-", "_"): value for name, value in self.options.items()}
        threshold = given.get("fault_threshold", FAULT_THRESHOLD)
        try:
            is_reached = float(str(threshold)) < most
        except ValueError:
            return  # The strategy explains what is wrong with its option.
        if not is_reached:
            raise SettingsError(
                f"options: fault_threshold {threshold} is never reached, because a disk serves at "
                f"most {most:g} faults/s (fault_service_s): choose a lower threshold"
            )

    @property
    def efficiency(self) -> float:
        """Return the fraction of processor time that is left to jobs after context switches."""
        return self.quantum_s / (self.quantum_s + self.context_switch_s)

    def memories(self) -> list[float]:
        """Return the bytes that jobs may use on each node.

        Raises:
            SettingsError: ``more_nodes`` is not a list of NUMBERxMB, such as ``8x768``.
        """
        found = [self.memory_mb] * self.nodes
        for group in filter(None, self.more_nodes.split(",")):
            number, _, memory = group.strip().partition("x")
            try:
                found += [float(memory)] * int(number)
            except ValueError:
                raise SettingsError(
                    f"more_nodes: {group!r}: expected NUMBERxMB, such as 8x768"
                ) from None
        if not all(memory > 0 for memory in found):
            raise SettingsError("more_nodes: expected memory > 0")
        return [memory * MB * self.user_share for memory in found]

    @property
    def label(self) -> str:
        """Return the name of the strategy."""
        return self.strategy if isinstance(self.strategy, str) else type(self.strategy).__name__
