"""The errors that stop a simulation, by what can be done about them."""

from pliant.core.support.base_error import PliantError


class SimulationError(PliantError):
    """The base class of the simulator's errors. The message is one line."""


class SettingsError(SimulationError, ValueError, code="simulation-settings"):
    """A setting or an option is invalid. The message names it and says what is expected."""


class StrategyFaultError(SimulationError, code="simulation-strategy"):
    """The strategy raised an error, or returned an invalid plan."""


class NoProgressError(SimulationError):
    """The strategy plans for ever, or jobs wait and no event is left that could start them."""
