"""A federation: a Pliant server, the grid server, that uses processors of other Pliant servers.

The other servers are called sites. At a site, the federation submits stubs: jobs of size 1 whose
processor becomes a node of the grid server. `federation_loop` observes all servers and carries out
actions, `planner` decides which.
"""
