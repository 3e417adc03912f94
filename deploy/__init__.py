"""Reserved for installation on real machines: systemd units, sample configuration, SSH.

It is empty so far. No part imports this one, and the daemons run without it.

May import: the standard library, PyYAML, paramiko (extra ``deploy``, lazily), ``pliant.core``.
"""
