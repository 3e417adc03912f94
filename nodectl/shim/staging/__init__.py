"""The staged files of a job on the side of a shim."""
