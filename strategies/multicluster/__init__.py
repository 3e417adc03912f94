"""Decisions about several clusters: where a job's components go, and when processors are taken.

KOALA (Buisson et al. 2007, 4.1) places jobs by information that may be old, on clusters that other
users share. All modules work on numbers of processors by the name of the cluster.
"""
