"""Named failpoints: places where a process can be told to die, stop or dawdle, for tests.

Where a message comes by it can be lost or doubled, where something is written the disk can be full.

``failpoint("appkit.grow.join")`` does nothing, at the price of one look at a variable, unless
``PLIANT_FAILPOINTS`` was set when the process started. `registry` lists every name; docs/faults.md
tells how to use them and what has come of each.

May import: the standard library alone. Every part that runs in a process of its own may import it.
"""

from pliant.faults.trigger import active, failpoint, identify, message, writing

__all__ = ["active", "failpoint", "identify", "message", "writing"]
