"""Nodes of a user's own cluster on other hosts: over SSH, or in an allocation of Slurm."""
