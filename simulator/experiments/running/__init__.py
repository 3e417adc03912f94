"""Runs of experiments: in parallel processes, with results that are kept on disk."""
