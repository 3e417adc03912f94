"""A Slurm of its own for tests: its daemons, with several nodes, on this machine."""

from slurmkit.cluster import Slurm, why_missing

__all__ = ["Slurm", "why_missing"]
