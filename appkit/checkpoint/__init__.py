"""Save and restore all registered data, collectively.

`store` reads and writes the folder of a job's checkpoints, and decides whether one is valid. `save`
and `restore` are called by all processes.
"""
