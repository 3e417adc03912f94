"""Installation on real machines: deployment over SSH, systemd units and manual pages.

``planning`` decides what is done on each host, from facts that ``on_host`` collects there;
``rollout`` carries out the plans of many hosts over SSH. Units, settings
and the account of the daemons are data files in ``units``; `unit_files` fills them in. Manual pages
are made from the parsers of the commands. The daemons run without this part.

May import: the standard library, PyYAML, paramiko (extra ``deploy``, lazily), ``pliant.core``,
``pliant.protos`` and ``pliant.client``.
"""
