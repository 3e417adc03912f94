"""Installation on real machines: systemd units and manual pages.

Units, settings and the account of the daemons are data files in ``units``; `unit_files` fills them
in. Manual pages are made from the parsers of the commands. The daemons run without this part.

May import: the standard library, PyYAML, paramiko (extra ``deploy``, lazily), ``pliant.core``,
``pliant.protos`` and ``pliant.client``.
"""
