"""Definitions of experiments as data, and functions that read them from YAML."""
