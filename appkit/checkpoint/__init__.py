"""Saving and restoring all registered data, collectively.

`store` is the folder of a checkpoint and decides when it is valid. `save` and `restore` are
called by all processes.
"""
