"""A cluster on this machine: ``pliant up`` and ``pliant down``, its daemons and their processes.

`up_down` has the two commands, `local_cluster` is the cluster with its daemons (`daemons`), and
`shutdown` takes it down. Clusters with nodes on other hosts are in `remote`.
"""
