"""Plan the steps on each host from facts about it, without connections.

`hosts_file` reads ``hosts.yaml``, `checks` finds problems, `plan` makes the steps of an
installation or an upgrade, and `removal` those of a removal.
"""
