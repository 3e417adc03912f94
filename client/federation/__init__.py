"""A federation: a grid server whose nodes are stubs, jobs of size 1 at other Pliant servers.

`federation_loop` observes all servers and carries out actions, `planner` decides which.
"""
