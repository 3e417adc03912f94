"""The domain as a pure state machine: ``core.handle(event, now) -> list[Command]``.

Jobs, nodes, allocations, negotiation and the transaction of a resize live here, as data and as
functions over it. Nothing here does I/O, starts a thread, reads a clock or draws a random number,
so the daemon and the simulator run the very same behaviour.

May import: the standard library only (and of that, nothing that talks to the outside).
"""

from pliant.core.support.lazy_imports import lazy_names

TYPE_CHECKING = False  # as in `pliant`

if TYPE_CHECKING:
    from pliant.core.state.invariants import InvariantError
    from pliant.core.state_machine import Core
    from pliant.core.values.timeouts import Timeouts

__all__ = ["Core", "InvariantError", "Timeouts"]

__getattr__ = lazy_names(
    __name__,
    {"Core": "state_machine", "InvariantError": "state.invariants", "Timeouts": "values.timeouts"},
)
