"""Installation on real machines: systemd units, sample configuration, bootstrap over SSH.

Here live the files an administrator copies and the code that copies them. No part imports this
one, and the daemons run without it.

May import: the standard library, PyYAML, paramiko (extra ``deploy``, lazily), ``pliant.core``.
"""
