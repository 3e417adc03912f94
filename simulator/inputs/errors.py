"""What can stop a simulation, split by who can do something about it."""

from pliant.core.support.errors import PliantError


class SimulationError(PliantError):
    """Base of everything that the simulator raises on purpose; the message is one line."""


class SettingsError(SimulationError, ValueError, code="simulation-settings"):
    """A setting or an option makes no sense; the message names it and says what is expected."""


class StrategyFaultError(SimulationError, code="simulation-strategy"):
    """The strategy raised, returned no plan, or planned what is not there."""


class NoProgressError(SimulationError):
    """The strategy plans for ever, or jobs wait and nothing will happen any more."""
