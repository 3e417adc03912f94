"""Failpoints: named places where tests can make a process die, stop or wait.

At some of them a message can be dropped or doubled, at others the disk can be full.

``failpoint("appkit.grow.join")`` only tests a variable, unless ``PLIANT_FAILPOINTS`` was set when
the process started. `registry` lists all names. docs/faults.md explains how to use them, and what
happens at each.

May import: the standard library alone. Every part that runs in a process of its own may import it.
"""

from pliant.faults.failpoint_calls import active, before_write, failpoint, identify, message

__all__ = ["active", "before_write", "failpoint", "identify", "message"]
