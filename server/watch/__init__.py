"""Subscriptions to changes of jobs, nodes and the history: the operation ``watch``."""
