"""Simulation of nodes that share their processor and memory among jobs of one process.

The other simulations give each job processors of its own. Here, jobs on a node compute in turn, and
they page when together they demand more memory than the node has. So this package has its own loop;
the strategies, their views and their plans are the same.
"""
