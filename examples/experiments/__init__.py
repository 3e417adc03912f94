"""Definitions of the published experiments (YAML), and experiments with real jobs."""
