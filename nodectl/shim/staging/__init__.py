"""The staged files of a job on a node."""
