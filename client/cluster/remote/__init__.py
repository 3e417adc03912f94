"""Nodes of a user's own cluster on other hosts: over SSH, or in an allocation of Slurm.

`ssh_cluster` and `slurm_cluster` are the two kinds of clusters. `node_agent` runs on each host, and
`save_jobs_before_end` saves jobs before an allocation ends.
"""
