"""Several clusters with their own users, and a scheduler of jobs on top of them (KOALA).

The scheduler decides with the code that the daemon uses (``strategies.policies`` and
``strategies.multicluster``). It sees the clusters only through an information provider. Claims can
fail, and growth takes the time that the local managers need to start processes.
"""
