"""A container with systemd as its first process, over a copy-on-write view of this host."""

from systemdkit.container import Container

__all__ = ["Container"]
