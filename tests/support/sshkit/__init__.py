"""A real sshd of this account on a port of the loopback interface, and keys for it."""

from sshkit.daemon import SshDaemon, make_key, missing_programs

__all__ = ["SshDaemon", "make_key", "missing_programs"]
