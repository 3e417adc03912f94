"""Folders of jobs, which belong to users: the private ones of runs, and those of checkpoints."""
